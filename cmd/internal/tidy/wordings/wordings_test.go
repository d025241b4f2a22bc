package wordings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	for text, want := range map[string]string{
		"The head is made anew.":                            "anew",
		"The day is deleted, too.":                          ", too",
		"This is too large, too many requests.":             "",
		"it holds at least one sample":                      "",
		"The least value":                                   "least",
		"a store over Cassandra":                            "over Cassandra",
		"one vote over\nCassandra":                          "over Cassandra",
		"queries are answered with 400":                     "answered with 400",
		"Returns 400.":                                      "",
		"What is a tenant?":                                 "",
		"What is sealed stays.":                             "What is",
		"The log says how many.":                            "says",
		"if you know the day":                               "",
		"The tenants that it is about are listed":           "it is about",
		"the chunks that they are about":                    "they are about",
		"this is about 10 bytes":                            "",
		"they are about 10 bytes":                           "",
		"It stops, for it holds no lock":                    "for it",
		"It stops, for the disk of the node is full":        "for",
		"use one for reads, one for the writes that follow": "",
		"10 bytes a sample":                                 "bytes a sample",
		"three times a day":                                 "",
		"a lack of memory":                                  "",
		"the row lacks labels":                              "lacks",
		"its time to live for rollups":                      "",
		"keeps it for ever":                                 "for ever",
	} {
		hits := Find([]Text{{Text: text}})
		if want == "" {
			require.Empty(t, hits, text)
			continue
		}
		require.Len(t, hits, 1, text)
		require.Equal(t, want, hits[0].Found, text)
	}
}

func TestMarkdown(t *testing.T) {
	page := "# Title\n\nOne `is anew`\nstep.\n\n```sh\nmade anew\n```\n| a | [b](what-is.md) |\n- item\n  goes anew\n"
	texts := markdown(Manual, "x.md", page)
	require.Equal(t, []Text{
		{Manual, "x.md", 1, "# Title"}, {Manual, "x.md", 3, "One ◌\nstep."}, {Manual, "x.md", 9, "| a | b |"}, {Manual, "x.md", 10, "- item\n  goes anew"},
	}, texts)
	require.Equal(t, 11, Find(texts)[0].Line)
}

func TestGoTexts(t *testing.T) {
	source := "package x\nimport \"a b c d\"\ntype s struct { A int `json:\"a few words here\"` }\n" +
		"var err = errors.New(\"gone\")\nfunc f() {\n\tcmd.Flag(\"web.x\", \"Where it \"+\n\t\t\"listens.\")\n\tquery(\"SELECT a FROM b WHERE c\")\n" +
		"\tfmt.Println(\"one %d sample short\")\n\tlookup(\"key\")\n\treg(Opts{Help: \"Samples.\"})\n}\n"
	require.Equal(t, []Text{
		{Messages, "cmd/cassia/x.go", 4, "gone"}, {Help, "cmd/cassia/x.go", 6, "Where it \nlistens."}, {Messages, "cmd/cassia/x.go", 9, "one ◌ sample short"},
		{Help, "cmd/cassia/x.go", 11, "Samples."},
	}, goTexts("cmd/cassia/x.go", source))
}

func TestPageTexts(t *testing.T) {
	source := "// a comment of words\nconst re = /it's/g, two = a < b ? 'of two words' : `kept ${n} days here`;\n" +
		"export function V() {\n  return (\n    <p class=\"not a text\" title=\"Shown title\" onClick={() => go('no text at all')}>\n      Text with <b>bold</b> and {n > 1 ? 'many more things' : 'a'} end.\n    </p>\n  );\n}\n"
	require.Equal(t, []Text{
		{Page, "v.tsx", 2, "of two words"}, {Page, "v.tsx", 2, "kept ◌ days here"}, {Page, "v.tsx", 5, "Shown title"}, {Page, "v.tsx", 6, "Text with "},
		{Page, "v.tsx", 6, "bold"}, {Page, "v.tsx", 6, "many more things"}, {Page, "v.tsx", 6, "and ◌ end.\n    "},
	}, pageTexts("v.tsx", source))
}

func TestHashComments(t *testing.T) {
	require.Equal(t, []Text{{Examples, "a.yaml", 2, " one two\n three four"}, {Examples, "a.yaml", 5, "beside a value here"}},
		hashComments("a.yaml", "a: 1\n# one two\n# three four\nb: 2\nc: 3 # beside a value here\n"))
}
