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

// maxHealth bounds an answer with findings, bytes.
const maxHealth = 16 << 20

// serverToAsk is a running server that doctor asks instead of looking at a directory or a cluster itself.
type serverToAsk struct {
	url   string
	login *httpConfig
}

// examine returns the server's findings about its open store, and one if it doesn't answer.
func (s *serverToAsk) examine(ctx context.Context) ([]doctor.Finding, error) {
	client, err := s.login.client(s.url)
	if err != nil {
		return nil, err
	}
	base := strings.TrimRight(s.url, "/")
	if err := answers(ctx, client, base+"/-/healthy"); err != nil {
		return []doctor.Finding{{
			Level: doctor.Error, What: oneLine(err), Why: "no server of Cassia's answers there, so senders and Grafana have no answer either",
			Do: "look whether it runs, at its log, and whether the URL is that which it listens on",
		}}, nil
	}
	found := []doctor.Finding{{Level: doctor.OK, What: "the server at " + withoutUser(base) + " answers"}}
	if err := answers(ctx, client, base+"/-/ready"); err != nil {
		found = append(found, doctor.Finding{
			Level: doctor.Warning, What: oneLine(err), Why: "queries are refused until it is ready; samples are taken",
			Do: "wait: after a restart it reads what isn't sealed; its log says when it is ready, or why it can't be",
		})
	} else {
		found = append(found, doctor.Finding{Level: doctor.OK, What: "it is ready for queries"})
	}
	theirs, err := s.findings(ctx, client, base+"/api/v1/cassia/health")
	if err != nil {
		return append(found, doctor.Finding{
			Level: doctor.Error, What: oneLine(err), Why: "what the server finds in its store isn't known",
			Do: "with --auth.file or --web.config.file, log in as an admin: --http.config.file; an earlier release has no such answer",
		}), nil
	}
	return append(found, theirs...), nil
}

// findings asks a server to look at its store.
func (s *serverToAsk) findings(ctx context.Context, client *http.Client, at string) ([]doctor.Finding, error) {
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
		return nil, fmt.Errorf("%s: the answer is longer than %d bytes", withoutUser(at), maxHealth)
	}
	if err := json.Unmarshal(body, &health); err != nil {
		return nil, fmt.Errorf("%s: %w", withoutUser(at), err)
	}
	if len(health.Data.Findings) == 0 {
		return nil, errors.New(withoutUser(at) + ": the answer has no findings")
	}
	return health.Data.Findings, nil
}
