package manual

import (
	"bytes"
	"embed"
	"errors"
	"path"
)

// pictures is the folder of the pictures. TestThePageInABrowser of cmd/internal/ui writes them.
const pictures = "images"

//go:embed images/*.webp
var pictureFiles embed.FS

// Picture is an image of the manual, in WebP.
type Picture struct {
	Content       []byte
	Width, Height int
}

// errNoWebP says that a file isn't an image of the one kind of WebP that Chromium writes.
var errNoWebP = errors.New("no lossy WebP image")

// FindPicture returns the picture of a name. Its error is fs.ErrNotExist if there is none.
func FindPicture(name string) (Picture, error) {
	content, err := pictureFiles.ReadFile(path.Join(pictures, name))
	if err != nil {
		return Picture{}, err
	}
	width, height, err := sizeOfWebP(content)
	return Picture{content, width, height}, err
}

// sizeOfWebP returns the size that stands in the header of the one frame (RFC 9649, section 2.5, and RFC 6386, section 9.1).
func sizeOfWebP(b []byte) (width, height int, err error) {
	if len(b) < 30 || !bytes.Equal(b[:4], []byte("RIFF")) || !bytes.Equal(b[8:16], []byte("WEBPVP8 ")) || !bytes.Equal(b[23:26], []byte{0x9d, 0x01, 0x2a}) {
		return 0, 0, errNoWebP
	}
	side := func(at int) int { return (int(b[at]) | int(b[at+1])<<8) & 0x3fff }
	return side(26), side(28), nil
}
