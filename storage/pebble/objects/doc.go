// Package objects stores backups of an engine's directory as objects of a bucket. Package backups calls it; package s3
// implements Bucket.
//
//	backups ─── STORE ─── SET ─┬─ 20261122T103000Z-1f….manifest          a manifest: the files of one backup
//	                           └─ 20261123T103000Z-07….damaged.manifest  the source was damaged already
//	files ───── STORE ─── SET ─┬─ HASH-20261122T103000Z-1f…-c2…      a file's content; the backup that uploaded it
//	                           └─ HASH-20261123T103000Z-07…-90…
//	garbage ─── STORE ─── SET ─── 20261123T103100Z-5a….list              names of files that no manifest refers to
//
// STORE is the identity of the store, so that multiple stores can share a bucket. SET is "plain", or "age-" and a
// fingerprint of the encryption key. Backups share files only within a set.
//
// # Why a backup is complete or absent
//
// A file's object is named after its content, the backup that uploaded it and a random number. It is stored atomically
// and never changes. The manifest is stored after all objects to which it refers. Without a manifest there is no
// backup; objects that were uploaded for it are used by the next one.
//
// # Why backups may run concurrently
//
// There are no locks. Files are removed in two steps, at least Options.Grace apart: files to which no manifest refers
// are recorded in a list of garbage; files in a list that is old enough are removed, if still no manifest refers to
// them. The list is removed after all of its files.
//
// Invariant: a backup that reads the lists after a file was recorded never refers to that file. It uploads the content
// again, with another random number.
//
// A backup reads the lists right before it stores its manifest, and must store it within less than Options.Grace. So
// when the manifests are read, every manifest that refers to a file in an old enough list exists, and no further one
// can appear.
//
// After it has stored its manifest, a backup reads it back, and reads the lists and the listing of files again: if a
// file is missing or recorded as garbage, because storing the manifest took too long, it starts over. The backup is
// valid only after this check.
//
// # Why a wrong response deletes nothing
//
// If a manifest were missing in a listing, its files would seem to be garbage. So files are removed only if the listing
// has the manifest that was just stored, and every listed manifest can be read. A manifest that isn't listed must also
// be missing when it is requested by name. This is checked for each manifest that was read before, that the newest
// other manifest lists, or whose backup uploaded an unused file. A backup with a missing file doesn't count for
// Options.Keep and isn't removed. An unreadable list of garbage may contain any file that was old enough when the list
// was stored, so these files aren't used.
//
// The age of a list is measured by the clocks of the bucket and of the process that removes files. The list must be old
// enough by both clocks.
package objects
