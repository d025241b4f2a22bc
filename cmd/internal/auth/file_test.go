package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func TestBadFiles(t *testing.T) {
	const secret = "hunter2-hunter2"
	slow := fmt.Sprintf("$2a$%02d$", maxCost+1) + strings.Repeat("a", 53)
	for text, want := range map[string]string{
		"":                                "has 0 users; must have 1 to",
		"users: []":                       "has 0 users; must have 1 to",
		"users: [{name: a}]\n---\na: 1\n": "more than one document",
		"user: []":                        "line 1: unknown key user",
		"users: [{name: a, pasword: " + secret + "}]":                                             "line 1: unknown key pasword",
		"users: {a: {password: " + secret + "}}":                                                  "line 1: a value has the wrong type",
		"users: [{name: a, password: [" + secret + "]}]":                                          "line 1: a value has the wrong type",
		"users: [" + secret + "]":                                                                 "line 1: a value has the wrong type",
		"users:\n- {name: a, tokens: " + secret + "}":                                             "line 2: a value has the wrong type",
		"users:\n- {name: a\n":                                                                    "line",
		"users: [{name: a, password: " + secret + "}]":                                            `user "a": password: must be a bcrypt hash`,
		"users: [{name: a, password: " + slow + "}]":                                              "the bcrypt hash has cost 15",
		"users: [{name: a, tokens: [" + secret + "]}]":                                            `user "a": tokens: each must be sha256:`,
		"users: [{name: a, tokens: ['sha256:" + secret + "']}]":                                   `user "a": tokens: each must be sha256:`,
		"users: [{name: '', password: " + secret + "}]":                                           "user number 1: name: is 0 bytes long",
		"users: [{name: 'a:b', password: " + secret + "}]":                                        "user number 1: name: must not contain colons",
		"users: [{name: " + strings.Repeat("a", 129) + "}]":                                       "user number 1: name: is 129 bytes long",
		"users: [{name: a, tokens: ['" + sha256Of("") + "']}]":                                    `user "a": tokens: this is the hash of an empty token`,
		"users: [{name: a}]":                                                                      "password, tokens or certificates are missing; set at least one of them",
		"users: [{name: a, certificates: ['']}]":                                                  `certificates: "" is empty or used twice`,
		"users: [{name: a, certificates: [x, x]}]":                                                "is empty or used twice",
		"users: [{name: a, certificates: ['*.example.org']}]":                                     `certificates: "*.example.org" is a wildcard`,
		"users: [{name: a, certificates: [x]}]":                                                   "roles are missing",
		"users: [{name: a, certificates: [x], roles: [root]}]":                                    `roles: unknown role "root"; the roles are read, write, metrics and admin`,
		"users: [{name: a, certificates: [x], roles: [read]}]":                                    "tenants are missing",
		"users: [{name: a, certificates: [x], roles: [read], tenants: a/b}]":                      "tenants: invalid name",
		"users: [{name: a, certificates: [x], roles: [read], tenants: [[a]]}]":                    "tenants: must be a list",
		"users: [{name: a, certificates: [x], roles: [read], tenants: a, default_tenant: b}]":     "default_tenant: b isn't among",
		"users: [{name: a, certificates: [x], roles: [read], tenants: '*', default_tenant: b|c}]": "default_tenant: invalid name",
		"users: [{name: a, certificates: [x], roles: [read], tenants: a}, {name: a}]":             `user "a": name: is already used by another user`,
		"users: [{name: a, tokens: ['" + sha256Of(secret) + "', '" + sha256Of(secret) + "']}]":    "tokens: the same token is already used",
	} {
		_, err := parse([]byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "hunter2", text)
		require.NotContains(t, err.Error(), sha256Of(secret)[10:], text)
	}
	many := "users:\n" + strings.Repeat("- {name: a}\n", maxUsers+1)
	_, err := parse([]byte(many))
	require.ErrorContains(t, err, "must have 1 to 10000")
}

// FuzzParse checks that no file causes a panic, and that no error contains the hash, which every file contains.
func FuzzParse(f *testing.F) {
	hash := "$2a$04$" + strings.Repeat("Z", 53)
	f.Add("users: [{name: a, password: SECRET, roles: [read], tenants: [a]}]")
	f.Add("users:\n- name: a\n  tokens: [SECRET]\n  roles: [admin]\n  tenants: '*'\n")
	f.Add("users: {SECRET: 1}")
	f.Add("users: [SECRET, &a SECRET, *a]")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse([]byte(strings.ReplaceAll(text, "SECRET", hash)))
		if err != nil {
			require.NotContains(t, err.Error(), strings.Repeat("Z", 40))
			return
		}
		for _, u := range all.byName {
			require.NoError(t, checkName(u.name))
			require.True(t, u.usual == "" || u.CanUse(u.usual))
			if u.password != "" {
				_, err := bcrypt.Cost([]byte(u.password))
				require.NoError(t, err)
			}
		}
	})
}
