// Package pebble keeps wide rows in Pebble, an LSM tree within the process: the engine for one machine.
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
// A row's key is its table's ID and its fields, in an encoding whose order by bytes is the order of the
// fields:
//
//	+----------+------------------+-----+-------------------+-----+
//	| table ID | partition fields | … … | clustering fields | … … |
//	| 1 byte   |                  |     |                   |     |
//	+----------+------------------+-----+-------------------+-----+
//
// No encoded field begins with another one's encoding. So the bytes of a partition key are a prefix of its
// rows and of nothing else; a Scan is one range, a Drop one range delete.
//
// Integers take as many bytes as they need, for most are small: a day's number takes three, a time in
// milliseconds seven, a kind or shard one. The first byte, the tag, orders by sign and length:
//
//	value                       tag                   followed by
//	-120 … 119                  value + 0x80          nothing
//	120 and more                0xf7 + n (f8 … ff)    the n low bytes of the value, most significant first
//	-121 and less               0x08 - n (07 … 00)    the n low bytes of its two's complement, likewise
//
// n is the least number of bytes (1 to 8) that distinguishes the value from others of its sign: for a value v ≥ 0
// that hold v, for v < 0 that hold -1-v. No other n is valid, so an integer has one encoding.
//
//	 0 = 80    119 = f7    120 = f8 78      255 = f8 ff    256 = f9 01 00    20000 = f9 4e 20
//	-1 = 7f   -120 = 08   -121 = 07 87     -256 = 07 00   -257 = 06 fe ff
//
// Texts are their bytes and a terminator, 00, which is less than any byte of a longer text. The bytes 00
// and 01 within a text are escaped:
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
// and the greatest by bytes wins: see newMerger. Expires is left to Drop.
//
// # Sealed rows
//
// A Write of many rows of raw, r5m and r1h (Options.IngestBytes) makes sorted files of them, which Pebble ingests: they take neither the log
// nor a memtable, and lie in the last level at once where no other rows lie among them. Their names begin with "CURRENT." until they
// belong to the database; those left by a process that was killed are removed when the directory is opened. See ingester and
// storage/design/sealing.md.
//
// # The engine's own row
//
// Table ID 00 is no table's. Under it stands one row, the key 00 "format", with the version of all of this
// as decimal text; Open refuses another one than its own.
//
// # When the disk fails
//
// Below Options.ReserveBytes of free disk, writes are refused and deletes are taken. If the log or the
// manifest fails all the same, nothing is written until the process starts anew (vitalFS), reading goes on,
// and Options.OnFatal is called.
//
// # When files are damaged
//
// A damaged block is an error of the scan that meets it (engine.ErrCorrupt), or a gap in one that asks for the rest
// (engine.Range.Damaged): the file is read as a whole then, and the keys that its damaged blocks may hold are left out,
// of newer and older files too, for a delete or a newer value may be what can't be read. See tableFile and skipping.
// Reading a damaged block again costs no more than reading another, see badBlocks.
package pebble
