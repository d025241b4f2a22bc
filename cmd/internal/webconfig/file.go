package webconfig

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// retryInterval is the time after which the files are read again after an error, even if they haven't changed. The
// cause may be outside of the files.
const retryInterval = time.Second

// File is a web configuration file with its certificates. A nil File has no settings. Its methods are safe for
// concurrent use.
type File struct {
	path string
	// hasAuthFile is set if --auth.file defines the users.
	hasAuthFile bool
	report      func(error)
	current     atomic.Pointer[settings]

	mu sync.Mutex
	// read contains the state of the files before they were last read. then and err are the time and the error of that
	// read.
	read map[string]os.FileInfo
	then time.Time
	err  error
}

// Open reads a file. authFile must be set if --auth.file defines the users. The error contains the cause.
func Open(path string, authFile bool) (*File, error) {
	f := &File{path: path, hasAuthFile: authFile, report: func(error) {}}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// OnReload sets a function that is called with the result whenever changed files were read. It must be called before
// the first request.
func (f *File) OnReload(report func(error)) {
	if f != nil {
		f.report = report
	}
}

// Reload reads the files. If it fails, the previous settings stay in effect.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loadFiles()
}

// settings returns the last valid settings. If the files have changed, it reads them first. If another goroutine is
// reading the files, settings doesn't wait for it.
func (f *File) settings() *settings {
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		if f.isChanged() || f.err != nil && time.Since(f.then) >= retryInterval {
			f.report(f.loadFiles())
		}
	}
	return f.current.Load()
}

// isChanged reports whether a file has changed since it was last read.
func (f *File) isChanged() bool {
	for path, before := range f.read {
		now, err := os.Stat(path)
		if (err == nil) != (before != nil) {
			return true
		}
		if err == nil && (!os.SameFile(now, before) || now.Size() != before.Size() ||
			!now.ModTime().Equal(before.ModTime()) || now.Mode() != before.Mode()) {
			return true
		}
	}
	return false
}

// loadFiles reads the files. The caller must hold the mutex.
func (f *File) loadFiles() error {
	f.read, f.then = map[string]os.FileInfo{}, time.Now()
	s, err := f.parse()
	if err == nil {
		err = f.checkSettings(s)
	}
	if err != nil {
		f.err = fmt.Errorf("--web.config.file=%s: %s", f.path, strings.Join(strings.Fields(err.Error()), " "))
		return f.err
	}
	f.err = nil
	f.current.Store(s)
	return nil
}

// checkSettings returns an error if the settings contradict other settings of the process.
func (f *File) checkSettings(s *settings) error {
	if s.users != nil && f.hasAuthFile {
		return errors.New("basic_auth_users can't be used together with --auth.file; move the users to that file")
	}
	if old := f.current.Load(); old != nil && (old.tls == nil) != (s.tls == nil) {
		return errors.New("TLS can't be enabled or disabled while Cassia runs; restart it")
	}
	return nil
}

// UsesTLS reports whether connections use TLS.
func (f *File) UsesTLS() bool { return f != nil && f.current.Load().tls != nil }

// HasUsers reports whether every request must have a password.
func (f *File) HasUsers() bool { return f != nil && f.current.Load().users != nil }

// IsMutual reports whether every client must have a verified certificate.
func (f *File) IsMutual() bool {
	return f.UsesTLS() && f.current.Load().tls.ClientAuth == tls.RequireAndVerifyClientCert
}

// TLS returns the TLS configuration of a server, or nil if TLS is disabled. Each handshake uses the last valid
// settings.
func (f *File) TLS() *tls.Config {
	if !f.UsesTLS() {
		return nil
	}
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.settings().tls, nil },
	}
}
