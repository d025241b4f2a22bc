package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"embed"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/cassia-db/cassia/cmd/internal/server"
)

//go:embed dist
var dist embed.FS

// contentPolicy is the content security policy of the page. It allows loads and requests only from the page's own
// origin. Style sheets that the editor creates have the nonce, and images in style sheets may be data URLs.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%s'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// setSecurityHeaders sets the security headers of all files of the page.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// servePage serves the page with a new nonce. If the path names a tenant, it redirects to the page with that tenant
// selected.
func servePage(w http.ResponseWriter, r *http.Request) {
	if server.PathTenant(r.Context()) != "" {
		redirectToView(w, r, "explore", url.Values{})
		return
	}
	text, err := dist.ReadFile("dist/index.html")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	nonce := rand.Text()
	setSecurityHeaders(w.Header())
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(contentPolicy, nonce))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(bytes.ReplaceAll(text, []byte("{{nonce}}"), []byte(nonce)))
}

// asset is a file of the page.
type asset struct {
	kind          string
	plain, zipped []byte
}

// assets returns the files of the page by name, plain and gzipped. The first call compresses them.
var assets = sync.OnceValues(func() (map[string]asset, error) {
	files := map[string]asset{}
	list, err := fs.ReadDir(dist, "dist/assets")
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		plain, err := dist.ReadFile("dist/assets/" + f.Name())
		if err != nil {
			return nil, err
		}
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		if _, err := z.Write(plain); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		files[f.Name()] = asset{kind: mime.TypeByExtension(path.Ext(f.Name())), plain: plain, zipped: zipped.Bytes()}
	}
	return files, nil
})

// serveIcon serves the icon to clients that request it by its conventional name.
func serveIcon(w http.ResponseWriter, _ *http.Request) {
	files, err := assets()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f := files[path.Base(assetNames()["icon"])]
	setSecurityHeaders(w.Header())
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(f.plain)
}

// serveAsset serves a file of the page. It may be cached forever, because its name contains a hash of its contents.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	files, err := assets()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f, ok := files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	setSecurityHeaders(w.Header())
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(f.zipped)
		return
	}
	_, _ = w.Write(f.plain)
}
