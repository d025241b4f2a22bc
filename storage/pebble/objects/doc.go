// Package objects keeps backups of an engine's directory as objects of a bucket.
//
//	backups ─── STORE ─── SET ─┬─ 20261122T103000Z-1f….manifest          a manifest: the files of one backup
//	                           └─ 20261123T103000Z-07….damaged.manifest  the source was damaged already
//	files ───── STORE ─── SET ─┬─ HASH-20261122T103000Z-1f…-c2…      a file's content; the backup that uploaded it
//	                           └─ HASH-20261123T103000Z-07…-90…
//	garbage ─── STORE ─── SET ─── 20261123T103100Z-5a….list              names of files that no manifest refers to
//
// STORE is the identity of the store, so that several stores may share a bucket. SET is "plain", or "age-" and a
// fingerprint of the key that encrypts. Backups share files within a set only.
//
// # Why a backup is whole or absent
//
// A file's object is named after its content, the backup that uploaded it and a random number, is stored at once or not
// at all, and never changes. The manifest is stored after all objects that it refers to. Without it there is no backup;
// objects that were uploaded for it are used by the next one.
//
// # Why backups may run at the same time
//
// Nothing is locked. Files are removed in two steps, at least Options.Grace apart: what no manifest refers to is noted
// in a list of garbage; what stands in a list that is old enough is removed, if no manifest refers to it. The list goes
// when all of its files are gone.
//
// Invariant: a backup that reads the lists after a file was noted never refers to that file. It uploads the content
// again, under another random number.
//
// A backup reads the lists right before it stores its manifest, which must be stored within less than Options.Grace. So
// every manifest that refers to a file in a list that is old enough is there when the manifests are read, and none
// comes later.
//
// After it has stored its manifest, a backup reads it back, and lists the lists and the files once more: if a file is
// missing or noted, because storing the manifest took too long, it starts over. Only then the backup counts.
//
// # Why a wrong answer deletes nothing
//
// A listing that lacks a manifest would make its files garbage. So nothing is removed unless the listing has the
// manifest that was just stored, and every listed manifest can be read. A manifest that isn't listed must be missing
// when it is requested by name, too: each that was read before, that the newest other manifest names, or whose backup
// uploaded an unused file. A backup that lacks a file neither counts for Options.Keep nor is removed. A list of garbage
// that can't be read may name any file that was old enough when the list was stored: none of those is used.
//
// The age of a list is measured by the clock of the bucket and by that of the process that removes; by both it must be
// old enough.
package objects
