package objects

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
)

// ErrKey means that the key doesn't match a backup, which is encrypted with another key or isn't encrypted.
var ErrKey = errors.New("objects: wrong key for the backup")

// plainSet is the set of backups that aren't encrypted. encryptedSets is the prefix of the names of the other sets.
const (
	plainSet      = "plain"
	encryptedSets = "age-"
)

// Key encrypts objects in a bucket, in the age format. With a nil Key, nothing is encrypted. The names and
// authentication codes that a Key computes depend on a secret. The secret is derived from the identity, and can't be
// derived from the recipient.
type Key struct {
	identity  age.Identity
	recipient age.Recipient
	secret    []byte
	overhead  int64 // size in bytes of an encrypted empty file
}

// ReadKey reads a key from a file with one identity, as age-keygen writes it.
func ReadKey(path string) (*Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s isn't an age key file; create one with age-keygen", path)
	}
	if len(identities) != 1 {
		return nil, fmt.Errorf("%s has %d keys; must have exactly one", path, len(identities))
	}
	k := &Key{identity: identities[0]}
	var secret string
	switch i := k.identity.(type) {
	case *age.X25519Identity:
		k.recipient, secret = i.Recipient(), i.String()
	case *age.HybridIdentity:
		k.recipient, secret = i.Recipient(), i.String()
	default:
		return nil, fmt.Errorf("%s has an unsupported type of key; create one with age-keygen", path)
	}
	if k.secret, err = hkdf.Key(sha256.New, []byte(secret), nil, "cassia backups: names and manifests",
		sha256.Size); err != nil {
		return nil, fmt.Errorf("objects: %w", err)
	}
	empty, err := k.encrypt(strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	k.overhead, err = io.Copy(io.Discard, empty)
	return k, err
}

// set returns the name of the key's set of backups.
func (k *Key) set() string {
	if k == nil {
		return plainSet
	}
	return encryptedSets + k.mac("set", nil)[:16]
}

// mac returns the authentication code of content for a purpose. The key must not be nil.
func (k *Key) mac(purpose string, content []byte) string {
	m := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(m, "%s\n", purpose)
	m.Write(content)
	return hex.EncodeToString(m.Sum(nil))
}

// sum returns the authentication code of content for a purpose, or only a checksum if there is no key.
func (k *Key) sum(purpose string, content []byte) string {
	if k == nil {
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}
	return k.mac(purpose, content)
}

// hash returns the name of a file, derived from the SHA-256 of its content. With a key, the name doesn't reveal the
// content to anyone without the key.
func (k *Key) hash(sha256 string) string {
	if k == nil {
		return sha256
	}
	return k.mac("file", []byte(sha256))
}

func (k *Key) encrypt(from io.Reader) (io.Reader, error) {
	if k == nil {
		return from, nil
	}
	r, err := age.EncryptReader(from, k.recipient)
	if err != nil {
		return nil, fmt.Errorf("objects: encrypting: %w", err)
	}
	return r, nil
}

// errDecrypt means that content wasn't encrypted to the key, or was changed or truncated.
var errDecrypt = errors.New("objects: decrypting")

// decrypt returns a reader of the plaintext. Errors of decrypt and of the reader are errDecrypt, unless reading from
// failed.
func (k *Key) decrypt(from io.Reader) (io.Reader, error) {
	if k == nil {
		return from, nil
	}
	r, err := age.Decrypt(from, k.identity)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDecrypt, err)
	}
	return decrypting{r}, nil
}

type decrypting struct{ r io.Reader }

func (d decrypting) Read(p []byte) (n int, err error) {
	if n, err = d.r.Read(p); err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", errDecrypt, err)
	}
	return n, err
}

// size returns the size of an object with n bytes of content: age encrypts chunks of 64 KiB, each with a tag of 16
// bytes.
func (k *Key) size(n int64) int64 {
	const chunk, tag = 64 << 10, 16
	if k == nil {
		return n
	}
	return k.overhead + n + max(0, (n-1)/chunk)*tag
}
