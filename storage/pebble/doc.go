// Package pebble is the engine for one machine: it keeps wide rows in Pebble, an LSM tree in the process. cmd/cassia
// opens it; the storage packages use it as an engine.Engine. It also makes and restores backups of its directory and
// repairs damaged files, for package backups.
//
//	                 Write, Drop, CompareAndSet                     Scan
//	                            │ one batch, log synced               │ one iterator
//	                            ▼                                     ▼
//	key   ├ table ┼ partition fields ┼ clustering fields ┤ → value, in the order of the keys
//	      └─────────── one partition: contiguous ────────┘
//	               memtables → level 0 → … → level 6, compacted in the background
//
// # Keys
//
// A row's key is its table's ID and its fields, in an encoding whose order by bytes is the order of the fields:
//
//	+----------+------------------+-----+-------------------+-----+
//	| table ID | partition fields | … … | clustering fields | … … |
//	| 1 byte   |                  |     |                   |     |
//	+----------+------------------+-----+-------------------+-----+
//
// No encoding of a field is a prefix of another one. So the bytes of a partition key are a prefix of its rows and of no
// other rows; a Scan is one range, a Drop one range delete.
//
// Integers have variable length, because most are small: a day's number takes three bytes, a time in milliseconds
// seven, a kind or shard one. The first byte, the tag, orders by sign and length:
//
//	value                       tag                   followed by
//	-120 … 119                  value + 0x80          nothing
//	120 and more                0xf7 + n (f8 … ff)    the n low bytes of the value, most significant first
//	-121 and less               0x08 - n (07 … 00)    the n low bytes of its two's complement, in the same order
//
// n is the min number of bytes (1 to 8) that represents v for v ≥ 0, and -1-v for v < 0. No other n is valid, so an
// integer has exactly one encoding.
//
//	 0 = 80    119 = f7    120 = f8 78      255 = f8 ff    256 = f9 01 00    20000 = f9 4e 20
//	-1 = 7f   -120 = 08   -121 = 07 87     -256 = 07 00   -257 = 06 fe ff
//
// Texts are their bytes and a terminator, 00, which is less than any byte of a longer text. The bytes 00 and 01 in a
// text are escaped:
//
//	text byte 00 → 01 01      text byte 01 → 01 02      end → 00
//
//	"" = 00    "up" = 75 70 00    "a\x00" = 61 01 01 00
//
// IDs are their 16 bytes.
//
// # Values
//
// A row of most tables is a Set of the caller's value. A row of a converging table is a Merge of
//
//	+-----------------------------------------------+-------+
//	| timestamp, sign bit flipped, 8 bytes, big-end.| value |
//	+-----------------------------------------------+-------+
//
// and the largest by bytes wins: see newMerger. Expires is ignored; expired rows are removed by Drop.
//
// # Sealed rows
//
// A Write of many rows of raw, r5m and r1h (Options.IngestBytes) makes sorted files of them, which Pebble ingests.
// These rows use neither the log nor a memtable, and are in the last level immediately if no other rows are between
// them. The names of the files start with "CURRENT." until they belong to the database. Files left by a killed process
// are removed when the directory is opened. See ingester and storage/design/sealing.md.
//
// # The engine's own row
//
// Table ID 00 belongs to no table. It has one row, with the key 00 "format", whose value is the version of all these
// encodings as decimal text. Open rejects all versions except its own.
//
// # When the disk fails
//
// If free disk space is below Options.ReserveBytes, writes are rejected and deletes are accepted. If the log or the
// manifest can't be written anyway, nothing is written until the process restarts (vitalFS), reads continue, and
// Options.OnFatal is called.
//
// # When files are damaged
//
// A damaged block is an error of the scan that reads it (damagedblock.BlockError), or a gap in a scan that continues
// after damage (engine.Range.Damaged). In the second case the file is verified completely, and the keys that its damaged
// blocks may contain are left out. They are also left out of newer and older files, because the damaged block may have
// a delete or a newer value. See tableFile and skipping. Reading a damaged block again costs no more than reading
// another block, see package badblocks.
package pebble
