// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/pki"
)

// Paths that the pod mounts, and its ports: see templates/addons/database.
const (
	replicationDir = "/etc/mysql-replication"
	clientFile     = "/etc/mysql-secret/client.cnf"
	serverFile     = "/etc/mysql-config/server.cnf"
	runDir         = "/run/mysqld"
	volumeDir      = "/var/lib/mysql"
	healthAddress  = ":3307"
	port           = 3306
	namespaceFile  = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Install copies this program to a file, because the database image does not contain it.
func Install(to string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	from, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755) //nolint:gosec // a program must be executable
	if err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	_, err = io.Copy(out, from)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	return nil
}

// RunInPod runs the agent of a server in its pod, until ctx ends.
func RunInPod(ctx context.Context, server string, out, errOut io.Writer) error {
	if !slices.Contains(Servers(), server) {
		return fmt.Errorf("--server is %q, and must be one of %s", server, strings.Join(Servers(), ", "))
	}
	c, err := podConfig(server)
	if err != nil {
		return err
	}
	c.Programs.Output, c.Log = errOut, slog.New(slog.NewTextHandler(out, nil))
	a := New(c)
	health := &http.Server{Addr: healthAddress, ReadHeaderTimeout: askTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !a.Alive() {
			http.Error(w, "the agent hangs", http.StatusServiceUnavailable)
		}
	})}
	go func() {
		if err := health.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			c.Log.Warn("the health of the agent cannot be served", "error", err)
		}
	}()
	defer func() { _ = health.Close() }()
	return a.Run(ctx)
}

func podConfig(server string) (Config, error) {
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return Config{}, fmt.Errorf("reading the namespace: %w", err)
	}
	c := Config{Me: server, Node: os.Getenv("NODE_NAME"), Namespace: strings.TrimSpace(string(namespace)), Limits: DefaultLimits()}
	c.Files = Files{
		Dir: volumeDir, Socket: filepath.Join(runDir, "mysqld.sock"), CA: filepath.Join(runDir, "ca.crt"),
		Certificate: filepath.Join(runDir, "tls.crt"), Key: filepath.Join(runDir, "tls.key"),
	}
	c.Programs.Server = []string{"mariadbd", "--defaults-file=" + serverFile}
	c.Programs.Install = []string{"mariadb-install-db", "--no-defaults", "--tmpdir=/tmp", "--skip-test-db", "--auth-root-authentication-method=socket",
		"--skip-name-resolve", "--force"}
	c.Names = []string{ServiceName(server), ServiceName(server) + "." + c.Namespace + ".svc"}
	c.Source = mysql.Source{Host: ServiceName(Peer(server)) + "." + c.Namespace + ".svc", Port: port, User: "ocadm-replica"}
	if err := c.secrets(); err != nil {
		return c, err
	}
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return c, fmt.Errorf("reading the account of the pod: %w", err)
	}
	cfg.Timeout, cfg.UserAgent = askTimeout, "ocadm-mysql"
	c.Kube, err = kube.New(kube.Unlimited(cfg))
	return c, err
}

func (c *Config) secrets() error {
	var password, cert, key []byte
	for name, into := range map[string]*[]byte{"password": &password, "ca.crt": &cert, "ca.key": &key} {
		var err error
		if *into, err = os.ReadFile(filepath.Join(replicationDir, name)); err != nil {
			return fmt.Errorf("reading the password and the authority of the replication: %w", err)
		}
	}
	c.Source.Password = string(password)
	var err error
	if c.Authority, err = pki.ParsePair(cert, key); err != nil {
		return fmt.Errorf("reading the authority: %w", err)
	}
	client, err := os.ReadFile(clientFile)
	if err != nil {
		return fmt.Errorf("reading the administrator's account: %w", err)
	}
	for line := range strings.Lines(string(client)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "user":
			c.User = value
		case "password":
			c.Password = value
		}
	}
	return nil
}
