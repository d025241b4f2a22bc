package server

import (
	"net/http"
	"os"
	"regexp"
	"strings"
)

// urlPassword matches the part of a URL from :// to the @ after the password. The password ends at the last @ before
// the path. The first group is the text before the password.
var urlPassword = regexp.MustCompile(`(://[^\s:/?#]*:)[^\s/?#]*@`)

// withoutPasswords masks the passwords of URLs in a text as url.URL.Redacted does.
func withoutPasswords(s string) string { return urlPassword.ReplaceAllString(s, "${1}xxxxx@") }

// commandLine serves the command line as net/http/pprof does, but with masked passwords, because profiles are often
// shared with others.
func commandLine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(withoutPasswords(strings.Join(os.Args, "\x00"))))
}
