package promrig

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrExited means that a program exited without being stopped.
var ErrExited = errors.New("promrig: the program exited")

// Program is a program to start.
type Program struct {
	// Name is the name of the program in messages.
	Name string
	// Path is the path of the binary.
	Path string
	Args []string
	// Address is the address on which the program listens. ReadyPath is a path that returns 200 once the program is
	// ready.
	Address, ReadyPath string
	// TLS is set if the program uses TLS. Its certificate isn't verified.
	TLS bool
	// Log is the file to which the output of the program is appended.
	Log string
	// Env contains additional environment variables, as NAME=value.
	Env []string
}

// Process is a running program. The caller that started it must stop it with Terminate or Kill.
type Process struct {
	Program
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a program. The program is killed when this process exits, even if this process is killed itself.
func Start(p Program) (*Process, error) {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.Env...)
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("promrig: start %s: %w", p.Name, err)
	}
	out := &Process{Program: p, cmd: cmd, done: make(chan struct{})}
	go func() {
		out.err = cmd.Wait()
		close(out.done)
	}()
	return out, nil
}

// StartReady starts a program and waits until it is ready.
func StartReady(ctx context.Context, p Program) (*Process, error) {
	process, err := Start(p)
	if err != nil {
		return nil, err
	}
	if err := process.WaitReady(ctx); err != nil {
		process.Kill()
		return nil, err
	}
	return process, nil
}

// URL returns the URL of the program.
func (p *Process) URL() string {
	if p.TLS {
		return "https://" + p.Address
	}
	return "http://" + p.Address
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// WaitReady waits until the program is ready. If the program exits before that, it returns ErrExited with the end of
// the log.
func (p *Process) WaitReady(ctx context.Context) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Timeout: 5 * time.Second, Transport: transport}
	for {
		response, err := client.Get(p.URL() + p.ReadyPath)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("%w: %s: %w\n%s", ErrExited, p.Name, p.err, p.logEnd())
		case <-ctx.Done():
			return fmt.Errorf("%s isn't ready: %w\n%s", p.Name, ctx.Err(), p.logEnd())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// logEnd returns the end of the log.
func (p *Process) logEnd() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// Terminate stops the program with SIGTERM, and kills it if it hasn't exited within the given time. It returns an error
// if the program had to be killed or didn't exit with status 0.
func (p *Process) Terminate(within time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("promrig: stop %s: %w", p.Name, err)
	}
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("promrig: stop %s: %w\n%s", p.Name, p.err, p.logEnd())
		}
		return nil
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("promrig: %s hadn't stopped after %s\n%s", p.Name, within, p.logEnd())
	}
}

// Kill kills the program as kill -9 does, and waits until it has exited. It may be called more than once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have exited already
	<-p.done
}

// FreeAddress returns ports from firstPort to lastPort, both included. This range is below the range from which the
// kernel assigns ports to outgoing connections and to listeners that request any free port. Otherwise the kernel could
// assign a returned port to another program before the test's program starts to listen, or while the test restarts its
// program. The ports of docker/cassandra/local are above this range.
//
// Packages are tested concurrently, each in a separate test process. The range is divided into portParts parts. A test
// process prefers the ports of one part, selected by its process id, because another test process may be about to start
// or restart a program on a port that is free now.
const (
	firstPort, lastPort = 10_000, 19_999
	portParts           = 20
)

// usedPorts contains the ports that this process has already used.
var usedPorts struct {
	mu    sync.Mutex
	ports map[int]bool
}

// FreeAddress returns an address of this machine on which no process is listening. Within a process, it never returns
// the same address twice.
func FreeAddress() (string, error) {
	usedPorts.mu.Lock()
	defer usedPorts.mu.Unlock()
	if usedPorts.ports == nil {
		usedPorts.ports = map[int]bool{}
	}
	const all, part = lastPort - firstPort + 1, (lastPort - firstPort + 1) / portParts
	for try := range all {
		port := firstPort + rand.IntN(all)
		if try < 2*part {
			port = firstPort + os.Getpid()%portParts*part + rand.IntN(part)
		}
		if usedPorts.ports[port] {
			continue
		}
		usedPorts.ports[port] = true
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // A process listens there.
		}
		return listener.Addr().String(), listener.Close()
	}
	return "", fmt.Errorf("promrig: no port from %d to %d is free", firstPort, lastPort)
}

// Binary returns the path of a program that `make test` provides. The path is set by an environment variable;
// otherwise the program is in the repository's folder bin.
func Binary(variable, name string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		root, err := Root()
		if err != nil {
			return "", err
		}
		path = root + "/bin/" + name
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("promrig: no %s (%w): run `make %s`, or name one in %s", name, err,
			strings.ReplaceAll(name, "_", "-"), variable)
	}
	return path, nil
}

// Root returns the root of the repository that contains the working directory.
func Root() (string, error) {
	// This command also works in the module cmd/tools.
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cassia-db/cassia").Output()
	if err != nil {
		return "", fmt.Errorf("promrig: the working directory isn't in the repository: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// BuildCassia builds the cassia binary in a folder and returns its path. The options are passed to go build.
func BuildCassia(dir string, options ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := dir + "/cassia"
	cmd := exec.Command("go", append(append([]string{"build"}, options...), "-o", path, "./cmd/cassia")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("promrig: build cassia: %w\n%s", err, out)
	}
	return path, nil
}
