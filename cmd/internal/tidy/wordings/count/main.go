// Command count prints the stilted wordings in the texts of a repository as file:line: wording, and their number per
// 1,000 words by kind of text. With -comments, it prints the stilted wordings in the comments of the Go files below a
// folder, and the number of wordings per folder.
//
//	go run ./cmd/internal/tidy/wordings/count [-texts kind] [repository root]
//	go run ./cmd/internal/tidy/wordings/count -comments folder [repository root]
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cassia-db/cassia/cmd/internal/tidy/wordings"
)

func main() {
	kind := flag.String("texts", "", "print the texts of this `kind` instead")
	folder := flag.String("comments", "", "count comments of Go files below this `folder` instead; . for all")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	out := bufio.NewWriter(os.Stdout)
	err := count(out, root, *kind, *folder)
	out.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func count(out io.Writer, root, kind, folder string) error {
	if folder != "" {
		texts, err := wordings.CollectComments(root)
		if err != nil {
			return err
		}
		printComments(out, texts, path.Clean(folder))
		return nil
	}
	texts, err := wordings.Collect(root)
	if err != nil {
		return err
	}
	if kind != "" {
		for _, t := range texts {
			if t.Kind == wordings.TextKind(kind) {
				fmt.Fprintf(out, "%s:%d: %s\n", t.File, t.Line, t.Text)
			}
		}
		return nil
	}
	hits := wordings.FindHits(texts)
	printHits(out, hits)
	totals := wordings.CountTotals(texts, hits)
	fmt.Fprintf(out, "\n%-10s %8s %8s %12s\n", "kind", "words", "wordings", "per 1,000")
	for _, k := range wordings.Kinds {
		t := totals[k]
		fmt.Fprintf(out, "%-10s %8d %8d %12.1f\n", k, t.Words, t.Hits, t.PerThousand())
	}
	return nil
}

// printComments prints the stilted wordings in the comments below a folder, and the totals by folder.
func printComments(out io.Writer, texts []wordings.Text, folder string) {
	texts = slices.DeleteFunc(texts, func(t wordings.Text) bool {
		return folder != "." && t.Folder() != folder && !strings.HasPrefix(t.File, folder+"/")
	})
	hits := wordings.FindHits(texts)
	printHits(out, hits)
	fmt.Fprintf(out, "\n%-40s %8s %8s %12s\n", "comments in", "words", "wordings", "per 1,000")
	byFolder := wordings.ByFolder(texts)
	for _, name := range slices.Sorted(maps.Keys(byFolder)) {
		printTotal(out, name, byFolder[name], wordings.FindHits(byFolder[name]))
	}
	printTotal(out, "all", texts, hits)
}

func printTotal(out io.Writer, name string, texts []wordings.Text, hits []wordings.Hit) {
	t := wordings.CountTotals(texts, hits)[wordings.Comments]
	fmt.Fprintf(out, "%-40s %8d %8d %12.1f\n", name, t.Words, t.Hits, t.PerThousand())
}

func printHits(out io.Writer, hits []wordings.Hit) {
	for _, h := range hits {
		fmt.Fprintf(out, "%s:%d: %s (%s: %s)\n", h.File, h.Line, h.Found, h.Kind, h.Advice)
	}
}
