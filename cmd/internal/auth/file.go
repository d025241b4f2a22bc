package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/cassia-db/cassia/storage/bounds"
	"github.com/cassia-db/cassia/storage/tenant"
)

// Limits on the file.
const (
	maxFile    = 4 << 20
	maxUsers   = 10_000
	maxNameLen = 128
	// maxCost is the max bcrypt cost. With it, a check takes about a second.
	maxCost = 14
)

// fileContent is the contents of the file set by --auth.file:
//
//	users:
//	  - name: grafana
//	    password: $2y$10$…          # bcrypt
//	    roles: [read]
//	    tenants: [team-a, team-b]   # or "*"
//	    default_tenant: team-a
//	  - name: prometheus-a
//	    tokens: ["sha256:9f86d0…"]
//	    certificates: [prometheus-a.example.org]
//	    roles: [write]
//	    tenants: [team-a]
type fileContent struct {
	Users []fileUser `yaml:"users"`
}

type fileUser struct {
	Name          string    `yaml:"name"`
	Password      string    `yaml:"password"`
	Tokens        []string  `yaml:"tokens"`
	Certificates  []string  `yaml:"certificates"`
	Roles         []string  `yaml:"roles"`
	Tenants       yaml.Node `yaml:"tenants"`
	DefaultTenant string    `yaml:"default_tenant"`
}

// users is the parsed file.
type users struct {
	byName        map[string]*User
	byToken       map[[sha256.Size]byte]*User
	byCertificate map[string]*User
	// cost is the max bcrypt cost of all users' hashes. It is also used to check passwords of unknown users.
	cost int
}

func readFile(name string) (*users, error) {
	text, err := bounds.ReadFile(name, maxFile)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// parse parses the file. Its errors contain neither hashes nor text that may be a password in place of a hash.
func parse(text []byte) (*users, error) {
	var file fileContent
	if err := bounds.DecodeYAML(text, maxFile, &file); err != nil {
		return nil, withoutValues(err)
	}
	if n := len(file.Users); n == 0 || n > maxUsers {
		return nil, fmt.Errorf("has %d users; must have 1 to %d", n, maxUsers)
	}
	all := &users{byName: map[string]*User{}, byToken: map[[sha256.Size]byte]*User{}, byCertificate: map[string]*User{},
		cost: bcrypt.DefaultCost}
	for i := range file.Users {
		u := &file.Users[i]
		if err := all.add(u); err != nil {
			if nameErr := checkName(u.Name); nameErr != nil {
				return nil, fmt.Errorf("user number %d: %w", i+1, err)
			}
			return nil, fmt.Errorf("user %q: %w", u.Name, err)
		}
	}
	return all, nil
}

var unknownKey = regexp.MustCompile(`^(line \d+): field (\S{1,40}) not found`)

// withoutValues removes values from an error of the YAML parser, so that the error contains no secrets. Unknown keys
// are kept.
func withoutValues(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return err // A syntax error contains only the line number.
	}
	first := te.Errors[0]
	if m := unknownKey.FindStringSubmatch(first); m != nil {
		return fmt.Errorf("%s: unknown key %s", m[1], m[2])
	}
	line, _, _ := strings.Cut(first, ":")
	return fmt.Errorf("%s: a value has the wrong type, or a key is set twice", line)
}

func checkName(name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("name: is %d bytes long; must be 1 to %d", len(name), maxNameLen)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == ':' || r == 0x7f || r == '�' }) {
		return errors.New("name: must not contain colons or control characters")
	}
	return nil
}

func (all *users) add(f *fileUser) error {
	if err := checkName(f.Name); err != nil {
		return err
	}
	if all.byName[f.Name] != nil {
		return errors.New("name: is already used by another user")
	}
	u := &User{name: f.Name}
	all.byName[f.Name] = u
	if f.Password == "" && len(f.Tokens) == 0 && len(f.Certificates) == 0 {
		return errors.New("password, tokens or certificates are missing; set at least one of them")
	}
	if err := all.addSecrets(u, f); err != nil {
		return err
	}
	for _, name := range f.Certificates {
		if name == "" || all.byCertificate[name] != nil {
			return fmt.Errorf("certificates: %q is empty or used twice", name)
		}
		if strings.Contains(name, "*") {
			return fmt.Errorf("certificates: %q is a wildcard, which matches no other name; list the names", name)
		}
		all.byCertificate[name] = u
	}
	if err := u.setRoles(f.Roles); err != nil {
		return err
	}
	return u.setTenants(f)
}

func (all *users) addSecrets(u *User, f *fileUser) error {
	if f.Password != "" {
		cost, err := bcrypt.Cost([]byte(f.Password))
		if err != nil || len(f.Password) != 60 {
			return errors.New("password: must be a bcrypt hash, such as `htpasswd -nBC 10 NAME` prints after the colon")
		}
		if cost > maxCost {
			return fmt.Errorf("password: the bcrypt hash has cost %d; the maximum is %d", cost, maxCost)
		}
		u.password, all.cost = f.Password, max(all.cost, cost)
	}
	for _, token := range f.Tokens {
		digest, ok := strings.CutPrefix(token, "sha256:")
		raw, err := hex.DecodeString(digest)
		if !ok || err != nil || len(raw) != sha256.Size {
			return errors.New(
				"tokens: each must be sha256: followed by 64 hexadecimal digits, such as `printf %s TOKEN | " +
					"sha256sum` prints",
			)
		}
		key := [sha256.Size]byte(raw)
		if key == sha256.Sum256(nil) {
			return errors.New(
				"tokens: this is the hash of an empty token; was TOKEN empty in `printf %s TOKEN | sha256sum`?",
			)
		}
		if all.byToken[key] != nil {
			return errors.New("tokens: the same token is already used")
		}
		all.byToken[key] = u
	}
	return nil
}

func (u *User) setRoles(roles []string) error {
	if len(roles) == 0 {
		return errors.New("roles are missing; set read, write, metrics or admin")
	}
	for _, role := range roles {
		switch role {
		case "read":
			u.canRead = true
		case "write":
			u.canWrite = true
		case "metrics":
			u.canReadMetrics = true
		case "admin":
			u.canRead, u.canWrite, u.canReadMetrics, u.isAdmin = true, true, true, true
		default:
			return fmt.Errorf("roles: unknown role %q; the roles are read, write, metrics and admin", role)
		}
	}
	return nil
}

func (u *User) setTenants(f *fileUser) error {
	var list []string
	switch f.Tenants.Kind {
	case yaml.ScalarNode:
		list = []string{f.Tenants.Value}
	case yaml.SequenceNode:
		if err := f.Tenants.Decode(&list); err != nil {
			return errors.New("tenants: must be a list of names, or \"*\" for all")
		}
	}
	u.tenants = map[string]bool{}
	for _, name := range list {
		if name == "*" {
			u.hasAllTenants = true
			continue
		}
		if err := tenant.CheckName(name); err != nil {
			return fmt.Errorf("tenants: %w", err)
		}
		u.tenants[name] = true
	}
	if !u.hasAllTenants && len(u.tenants) == 0 && (u.canRead || u.canWrite) && !u.isAdmin {
		return errors.New(`tenants are missing; set a list of names, or "*" for all`)
	}
	switch {
	case f.DefaultTenant != "":
		if err := tenant.CheckName(f.DefaultTenant); err != nil {
			return fmt.Errorf("default_tenant: %w", err)
		}
		if !u.CanUse(f.DefaultTenant) {
			return fmt.Errorf("default_tenant: %s isn't among the tenants", f.DefaultTenant)
		}
		u.usual = f.DefaultTenant
	case u.hasAllTenants || u.tenants[tenant.Default]:
		u.usual = tenant.Default
	case len(u.tenants) == 1:
		for name := range u.tenants {
			u.usual = name
		}
	}
	return nil
}
