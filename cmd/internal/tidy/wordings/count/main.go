// Command count prints the stilted wordings in the texts of a repository as file:line: wording, and their number per 1,000 words by kind
// of text:
//
//	go run ./cmd/internal/tidy/wordings/count [-texts kind] [repository root]
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"

	"github.com/cassia-db/cassia/cmd/internal/tidy/wordings"
)

func main() {
	kind := flag.String("texts", "", "print the texts of this `kind` instead")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	texts, err := wordings.Collect(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if *kind != "" {
		for _, t := range texts {
			if t.Kind == wordings.TextKind(*kind) {
				fmt.Fprintf(out, "%s:%d: %s\n", t.File, t.Line, t.Text)
			}
		}
		return
	}
	hits := wordings.Find(texts)
	for _, h := range hits {
		fmt.Fprintf(out, "%s:%d: %s (%s: %s)\n", h.File, h.Line, h.Found, h.Kind, h.Advice)
	}
	totals := wordings.Totals(texts, hits)
	fmt.Fprintf(out, "\n%-10s %8s %8s %12s\n", "kind", "words", "wordings", "per 1,000")
	for _, k := range wordings.Kinds {
		t := totals[k]
		fmt.Fprintf(out, "%-10s %8d %8d %12.1f\n", k, t.Words, t.Hits, t.PerThousand())
	}
}
