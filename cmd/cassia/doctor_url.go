package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cassia-db/cassia/cmd/internal/doctor"
)

// maxHealth is the max size in bytes of a server's response that contains its findings.
const maxHealth = 16 << 20

// queriedServer is a running server that doctor queries instead of opening a directory or a cluster itself.
type queriedServer struct {
	url   string
	login *httpConfig
}

// examine returns the server's findings about its open store. If the server doesn't respond, the result is a finding
// that reports this.
func (s *queriedServer) examine(ctx context.Context) ([]doctor.Finding, error) {
	client, err := s.login.newClient(s.url)
	if err != nil {
		return nil, err
	}
	base := strings.TrimRight(s.url, "/")
	if err := checkOK(ctx, client, base+"/-/healthy"); err != nil {
		return []doctor.Finding{{
			Level: doctor.Error, What: oneLine(err),
			Why: "no Cassia server responds there, so senders and Grafana get no response either",
			Do:  "check that the server is running, read its log, and check that the URL matches its listen address",
		}}, nil
	}
	found := []doctor.Finding{{Level: doctor.OK, What: "the server at " + withoutUser(base) + " responds"}}
	if err := checkOK(ctx, client, base+"/-/ready"); err != nil {
		found = append(found, doctor.Finding{
			Level: doctor.Warning, What: oneLine(err),
			Why: "queries fail until the server is ready; samples are accepted",
			Do: "wait: after a restart the server replays samples that aren't sealed; its log has a line when it is " +
				"ready, or the reason why it can't become ready",
		})
	} else {
		found = append(found, doctor.Finding{Level: doctor.OK, What: "the server is ready for queries"})
	}
	theirs, err := s.requestFindings(ctx, client, base+"/api/v1/cassia/health")
	if err != nil {
		return append(found, doctor.Finding{
			Level: doctor.Error, What: oneLine(err), Why: "the state of the server's store is unknown",
			Do: "if the server uses --auth.file or --web.config.file, log in as an admin with --http.config.file; " +
				"releases before this one don't support the request",
		}), nil
	}
	return append(found, theirs...), nil
}

// requestFindings requests the findings of a server about its store.
func (s *queriedServer) requestFindings(ctx context.Context, client *http.Client, at string) ([]doctor.Finding, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxHealth+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", withoutUser(at), err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.*s", withoutUser(at), answer.Status, healthcheckAnswer, body)
	}
	var health struct {
		Data struct{ Findings []doctor.Finding }
	}
	if len(body) > maxHealth {
		return nil, fmt.Errorf(
			"%s: the response is longer than %d bytes; check that this is the URL of a Cassia server", withoutUser(at),
			maxHealth,
		)
	}
	if err := json.Unmarshal(body, &health); err != nil {
		return nil, fmt.Errorf("%s: %w", withoutUser(at), err)
	}
	if len(health.Data.Findings) == 0 {
		return nil, errors.New(withoutUser(at) + ": the response has no findings")
	}
	return health.Data.Findings, nil
}
