// Command s3 serves folders with the S3 protocol, for tests of backups. It runs Versity's gateway with its posix
// backend. The environment variables ROOT_ACCESS_KEY and ROOT_SECRET_KEY contain the credentials.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7070", "address to listen on")
	dir := flag.String("dir", "", "folder of the data: each folder in its buckets is a bucket")
	cert, key := flag.String("cert", "", "certificate, for TLS"), flag.String("key", "", "key of the certificate")
	flag.Parse()
	if err := serve(*listen, *dir, *cert, *key); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, dir, cert, key string) error {
	buckets, sidecar := filepath.Join(dir, "buckets"), filepath.Join(dir, "metadata")
	for _, folder := range []string{buckets, sidecar} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	store, err := meta.NewSideCar(sidecar)
	if err != nil {
		return err
	}
	backend, err := posix.New(buckets, store, posix.PosixOpts{SideCarDir: sidecar})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		Ports: []string{listen}, CertFile: cert, KeyFile: key, HealthPath: "/ready", Quiet: true, KeepAlive: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
	})
}
