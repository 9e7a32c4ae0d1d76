// SPDX-License-Identifier: Apache-2.0

// Package fakecloudtest runs stand-ins on loopback for tests. It builds the program, creates certificates, databases and configuration files, starts
// services and waits until they listen.
package fakecloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/child"
	_ "yunion.io/x/ocadm/test/fakecloud/program" // the program that is built below: go test must know that results depend on it
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// Cluster and Namespace are the owner in all certificates made here.
const (
	Cluster   = "default"
	Namespace = "onecloud"
)

// Cloud is a directory with the program, a CA and the files of its services.
type Cloud struct {
	Dir      string
	CA       pki.Pair
	CAFile   string
	DB       *mariadb.Server
	t        testing.TB
	keystone int
}

// New builds the program and creates the CA. Everything ends with the test.
func New(t testing.TB, db *mariadb.Server) *Cloud {
	t.Helper()
	c := &Cloud{Dir: t.TempDir(), DB: db, t: t}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(c.Dir, "fakecloud"), "yunion.io/x/ocadm/test/fakecloud")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the stand-in: %v\n%s", err, out)
	}
	var err error
	if c.CA, err = pki.NewCA(time.Now(), "test", nil); err != nil {
		t.Fatal(err)
	}
	c.CAFile = c.write("ca.crt", c.CA.CertPEM())
	c.keystone = FreePort(t)
	return c
}

// AuthURL returns the URL of this cloud's keystone, which may not be listening yet.
func (c *Cloud) AuthURL() string { return fmt.Sprintf("https://localhost:%d/v3", c.keystone) }

// Certificate issues a service certificate for the components and loopback, and returns the options that use it.
func (c *Cloud) Certificate(components ...string) map[string]any {
	c.t.Helper()
	return c.certificate(false, components)
}

// SmallCertificate is Certificate with an ECDSA key.
func (c *Cloud) SmallCertificate(components ...string) map[string]any {
	c.t.Helper()
	return c.certificate(true, components)
}

func (c *Cloud) certificate(small bool, components []string) map[string]any {
	c.t.Helper()
	names := []string{"localhost", "127.0.0.1"}
	for _, component := range components {
		names = append(names, pki.ServiceNames(Cluster+"-"+component, Namespace)...)
	}
	pair, err := pki.Issue(c.CA, pki.Request{CommonName: "service", Names: names, NotBefore: time.Now(), Small: small})
	require.NoError(c.t, err)
	key, err := pair.KeyPEM()
	require.NoError(c.t, err)
	name := strings.Join(components, "-")
	return map[string]any{
		"enable_ssl": true, "ssl_ca_certs": c.CAFile,
		"ssl_certfile": c.write(name+".crt", pair.CertPEM()), "ssl_keyfile": c.write(name+".key", key),
	}
}

// Database creates a database with an account of the same name and returns its sql_connection.
func (c *Cloud) Database(name, password string) string {
	c.t.Helper()
	if _, err := c.DB.Execute(c.t.Context(), "CREATE DATABASE IF NOT EXISTS `"+name+"` CHARACTER SET utf8mb4",
		"CREATE USER IF NOT EXISTS '"+name+"'@'%' IDENTIFIED BY '"+password+"'", "GRANT ALL ON `"+name+"`.* TO '"+name+"'@'%'"); err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf("mysql+pymysql://%s:%s@%s/%s?charset=utf8&parseTime=true&interpolateParams=true", name, password, c.DB.Addr(), name)
}

// Config writes a configuration file with the given groups of options and returns its path. It omits keys with nil values.
func (c *Cloud) Config(name string, groups ...map[string]any) string {
	c.t.Helper()
	all := map[string]any{}
	for _, group := range groups {
		maps.Copy(all, group)
	}
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	data, err := yaml.Marshal(all)
	require.NoError(c.t, err)
	return c.write(name+".conf", data)
}

// Keystone returns the options of this cloud's keystone, with a new database and a policy refresh every two seconds.
func (c *Cloud) Keystone(password string) map[string]any {
	c.t.Helper()
	options := c.Certificate("keystone")
	maps.Copy(options, map[string]any{
		"address": "127.0.0.1", "port": c.keystone, "admin_port": FreePort(c.t), "region": "region0",
		"sql_connection": c.Database("keystone", "ks-password"), "bootstrap_admin_user_password": password,
		"reset_admin_user_password": true, "rbac_policy_refresh_interval_seconds": 2,
	})
	return options
}

// Account returns the options with which a service logs in to keystone.
func (c *Cloud) Account(user, password string) map[string]any {
	return map[string]any{"address": "127.0.0.1", "region": "region0", "auth_url": c.AuthURL(), "admin_user": user, "admin_password": password}
}

func (c *Cloud) write(name string, data []byte) string {
	c.t.Helper()
	path := filepath.Join(c.Dir, name)
	require.NoError(c.t, os.WriteFile(path, data, 0o600))
	return path
}

// Process is a running stand-in.
type Process struct{ *child.Process }

// Start starts a service without waiting for it.
func (c *Cloud) Start(name string, args ...string) *Process {
	c.t.Helper()
	return c.StartEnv(nil, name, args...)
}

// StartEnv is Start with additional environment variables.
func (c *Cloud) StartEnv(env []string, name string, args ...string) *Process {
	c.t.Helper()
	link := filepath.Join(c.Dir, name)
	if err := os.Symlink("fakecloud", link); err != nil && !errors.Is(err, os.ErrExist) {
		c.t.Fatal(err)
	}
	log, err := os.CreateTemp(c.Dir, name+"-*.log")
	require.NoError(c.t, err)
	_ = log.Close()
	cmd := exec.Command(link, args...)
	cmd.Env = append(append(os.Environ(), "STANDIN_CLUSTER="+Cluster, "STANDIN_NAMESPACE="+Namespace), env...)
	p, err := child.Start(cmd, log.Name())
	require.NoError(c.t, err)
	c.t.Cleanup(p.Kill)
	return &Process{p}
}

// Listening waits until the port accepts connections. It fails the test if the program ends first.
func (p *Process) Listening(t testing.TB, port int) *Process {
	t.Helper()
	return p.until(t, fmt.Sprintf("does not listen on %d", port), func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Says waits until the program has printed a text.
func (p *Process) Says(t testing.TB, text string) *Process {
	t.Helper()
	return p.until(t, "does not say "+text, func(context.Context) bool { return strings.Contains(p.Output(), text) })
}

func (p *Process) until(t testing.TB, complaint string, done func(context.Context) bool) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-p.Exited:
			t.Fatalf("%s ended: %s", filepath.Base(p.Cmd.Path), p.Output())
		case <-ctx.Done():
			t.Fatalf("%s %s: %s", filepath.Base(p.Cmd.Path), complaint, p.Output())
		case <-tick.C:
		}
	}
	return p
}

// Wait waits for the program to end and returns its exit status.
func (p *Process) Wait() int {
	<-p.Exited
	return p.Cmd.ProcessState.ExitCode()
}

// Stop sends SIGTERM and returns the exit status.
func (p *Process) Stop() int {
	p.Process.Stop(time.Minute)
	return p.Wait()
}

// FreePort returns a free port of the loopback interface, reserved until a service listens on it.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Take("127.0.0.1")
	require.NoError(t, err)
	return port
}
