package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cassia-db/cassia/cmd/internal/lasting"
)

// The client decodes any XML as an empty listing, and treats any 404 as a missing object. checkAnswer therefore
// verifies that a response is from S3. Otherwise backups could be deleted because their objects seem to be missing.

// maxListing is the max size of one page of a listing in bytes. A page has at most 1000 names of at most 1 KiB.
const maxListing = 16 << 20

// checkAnswer returns an error for a response that isn't from S3, such as the response of a proxy or a captive portal.
// It detects listings with another root element or without the element that indicates further pages, and 404 responses
// that aren't S3 errors. It reads the bodies of these responses and replaces them. A truncated body isn't an error
// here: the client fails to decode it, and the request is repeated.
func checkAnswer(r *http.Request, answer *http.Response) error {
	query := r.URL.Query()
	switch {
	case answer.StatusCode == http.StatusNotFound && r.Method != http.MethodHead: // Responses to HEAD have no body.
		return checkBody(answer, checkMissing)
	case answer.StatusCode != http.StatusOK || r.Method != http.MethodGet:
		return nil
	case query.Get("list-type") == "2":
		return checkBody(answer, func(body []byte) error { return checkListing(body, query.Get("continuation-token")) })
	case query.Has("uploads"):
		return checkBody(answer, func(body []byte) error { return checkRoot(body, "ListMultipartUploadsResult") })
	}
	return nil
}

// checkBody reads the body, calls check with it, and replaces it.
func checkBody(answer *http.Response, check func([]byte) error) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxListing+1))
	closing := answer.Body.Close()
	if err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if len(body) > maxListing {
		err = fmt.Errorf("the response has more than %d bytes", maxListing)
	} else {
		err = check(body)
	}
	if err != nil {
		return notS3Error("status %d, %w", answer.StatusCode, err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// notS3Error returns the error for a response that isn't from S3. The request isn't retried.
func notS3Error(format string, args ...any) error {
	return &lasting.Error{
		Err:    fmt.Errorf("not a valid S3 response: "+format, args...),
		Advice: "check that the endpoint is an S3 server and that no proxy responds in its place",
	}
}

// listingPage holds the required elements of a page of a listing.
type listingPage struct {
	IsTruncated           *bool
	NextContinuationToken string
}

// checkListing verifies one page of a listing. token is the continuation token of the request, or "" for the first
// page.
func checkListing(body []byte, token string) error {
	if err := checkRoot(body, "ListBucketResult"); err != nil {
		return err
	}
	var l listingPage
	if err := xml.Unmarshal(body, &l); isCut(err) {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case l.IsTruncated == nil:
		return errors.New("the listing doesn't say whether it is truncated")
	case *l.IsTruncated && l.NextContinuationToken == "":
		return errors.New("the listing is truncated and has no continuation token")
	case *l.IsTruncated && l.NextContinuationToken == token:
		return errors.New("the listing's continuation token leads to the same page")
	}
	return nil
}

// checkMissing verifies the body of a 404 response.
func checkMissing(body []byte) error {
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if err := xml.Unmarshal(body, &e); err != nil || e.Code == "" {
		return fmt.Errorf("contains no S3 error: %q", start(body))
	}
	return nil
}

// checkRoot returns an error unless the root element has the given name. For a truncated body that ends before the root
// element, it returns nil.
func checkRoot(body []byte, want string) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(body)) > 0 || err != nil && !isCut(err) {
			return fmt.Errorf("contains no XML: %q", start(body))
		}
		if err != nil {
			return nil
		}
		switch t := token.(type) {
		case xml.StartElement:
			if t.Name.Local != want {
				return fmt.Errorf("contains <%s> instead of <%s>: %q", t.Name.Local, want, start(body))
			}
			return nil
		case xml.CharData:
			if len(bytes.TrimSpace(t)) > 0 {
				return fmt.Errorf("contains no XML: %q", start(body))
			}
		case xml.Directive:
			return fmt.Errorf("isn't XML: %q", start(body)) // such as <!DOCTYPE html>
		}
	}
}

// isCut reports whether a parse error means that the XML is truncated.
func isCut(err error) bool {
	var syntax *xml.SyntaxError
	return errors.Is(err, io.EOF) || errors.As(err, &syntax) && strings.Contains(syntax.Msg, "unexpected EOF")
}

// start returns the start of a body, to quote it in an error.
func start(body []byte) string {
	const most = 120
	text := strings.Join(strings.Fields(string(body[:min(len(body), 4*most)])), " ")
	return text[:min(len(text), most)]
}
