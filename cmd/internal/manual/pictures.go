package manual

import (
	"bytes"
	"embed"
	"errors"
	"path"
)

// picturesFolder is the folder with the images. TestThePageInABrowser in cmd/internal/ui writes them.
const picturesFolder = "images"

//go:embed images/*.webp
var pictureFiles embed.FS

// Picture is an image of the manual in the WebP format.
type Picture struct {
	Content       []byte
	Width, Height int
}

// errNoWebP means that a file isn't a WebP image in the extended format, which Chromium writes.
var errNoWebP = errors.New("must be a WebP image in the extended format")

// FindPicture returns the picture with the given name. If it doesn't exist, the error wraps fs.ErrNotExist.
func FindPicture(name string) (Picture, error) {
	content, err := pictureFiles.ReadFile(path.Join(picturesFolder, name))
	if err != nil {
		return Picture{}, err
	}
	width, height, err := sizeOfWebP(content)
	return Picture{content, width, height}, err
}

// sizeOfWebP returns the size of the canvas from the header (RFC 9649, section 2.7).
func sizeOfWebP(b []byte) (width, height int, err error) {
	if len(b) < 30 || !bytes.Equal(b[:4], []byte("RIFF")) || !bytes.Equal(b[8:16], []byte("WEBPVP8X")) {
		return 0, 0, errNoWebP
	}
	side := func(at int) int { return 1 + (int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16) }
	return side(24), side(27), nil
}
