package objects

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"fmt"
	"io"

	"github.com/cassia-db/cassia/storage/pebble"
)

// A record is a small object: a manifest, or a list of garbage. With a key all of it is encrypted.
//
//	┌───────────────────────────────────────────┬────┬──────┐
//	│ 64 digits: SHA-256 of the JSON, or its MAC │ \n │ JSON │
//	└───────────────────────────────────────────┴────┴──────┘

// maxRecord is the max size of a record in bytes. The manifest of a million files fits in it.
const maxRecord = 512 << 20

func putRecord(ctx context.Context, b Bucket, name string, content any, k *Key) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("objects: %s: %w", name, err)
	}
	text = append([]byte(k.sum("record", text)+"\n"), text...)
	from, err := k.encrypt(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return b.Put(ctx, name, from, k.size(int64(len(text))))
}

// getRecord reads a record. It returns pebble.ErrBackup if the object's content has changed since it was stored.
func getRecord(ctx context.Context, b Bucket, name string, into any, k *Key) error {
	in, err := b.Get(ctx, name)
	if err != nil {
		return err
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, maxRecord+1))
	if err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s "+format, append([]any{pebble.ErrBackup, name}, args...)...)
	}
	if len(raw) > maxRecord {
		return wrong("is larger than %d bytes", maxRecord)
	}
	plain, err := k.decrypt(bytes.NewReader(raw))
	if err == nil {
		raw, err = io.ReadAll(plain)
	}
	if err != nil {
		return wrong("can't be decrypted: %w", err)
	}
	sum, text, _ := bytes.Cut(raw, []byte("\n"))
	if !hmac.Equal(sum, []byte(k.sum("record", text))) {
		return wrong("has changed since it was stored")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return wrong("isn't a record: %w", err)
	}
	return nil
}
