// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"yunion.io/x/ocadm/test/fakecloud/keystone"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/schema"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// start plays a program until ctx ends. As in the real services, nothing is retried: a missing dependency ends the program.
func start(ctx context.Context, m Machine, p servicespec.Spec, args []string) error {
	switch p.Role {
	case servicespec.Raw:
		return m.stayUp(ctx, p, m.checkFiles(args))
	case servicespec.Once:
		log.Printf("%s is done", p.Name)
		return nil
	case servicespec.Foreign:
		return startForeign(ctx, m, p, args)
	}
	options, err := servicespec.Load(m.path, p.Name, p.Schema(), m.withoutMissing(args, p.NodeFile))
	if err != nil {
		return err
	}
	if p.Role == servicespec.Agent {
		return startAgent(ctx, m, p, options)
	}
	serverTLS, err := m.loadTLS(p, options)
	if err != nil {
		return err
	}
	if p.Role == servicespec.Identity {
		return startKeystone(ctx, m, p, options, serverTLS)
	}
	return startService(ctx, m, p, options, serverTLS)
}

func startKeystone(ctx context.Context, m Machine, p servicespec.Spec, options servicespec.Values, serverTLS *tls.Config) error {
	db, err := m.openStore(ctx, p, options, keystone.Tables())
	if err != nil {
		return err
	}
	defer db.Close()
	if options, err = keystone.MergeOptions(ctx, db, options, p); err != nil {
		return fmt.Errorf("merging configuration: %w", err)
	}
	server, err := keystone.Start(ctx, db, options)
	if err != nil {
		return err
	}
	if endsAfterInit(p, options) {
		return nil
	}
	return serve(ctx, m, p, options, serverTLS, server.Routes())
}

func startService(ctx context.Context, m Machine, p servicespec.Spec, options servicespec.Values, serverTLS *tls.Config) error {
	session, err := logIn(ctx, m, options)
	if err != nil {
		return err
	}
	if err := checkNeeds(ctx, m, p, options, session); err != nil {
		return err
	}
	if p.Name == "host" {
		if err := prepareHost(ctx, m, options, session); err != nil {
			return err
		}
	}
	options = session.SyncOptions(ctx, options, p)
	s := Service{Machine: m, Profile: p, Options: options, Cloud: session}
	if p.Database != servicespec.NoDatabase {
		if s.Store, err = m.openStore(ctx, p, options, p.Tables); err != nil {
			return err
		}
		defer s.Store.Close()
		if err := seed(ctx, p, s.Store); err != nil {
			return err
		}
	}
	if endsAfterInit(p, options) {
		return nil
	}
	return serve(ctx, m, p, options, serverTLS, s.Routes(ctx))
}

func (m Machine) loadTLS(p servicespec.Spec, options servicespec.Values) (*tls.Config, error) {
	enabled := options.Flag("enable_ssl") || p.CertKey == "tls_cert_file" && options.Text(p.CertKey, "") != ""
	if p.PlainHTTP || !enabled {
		return nil, nil
	}
	hostname, err := m.hostname()
	if err != nil {
		return nil, fmt.Errorf("reading host name: %w", err)
	}
	// Outside a pod there may be no resolv.conf. Then the namespace stays unknown.
	resolv, _ := os.ReadFile(m.path("/etc/resolv.conf"))
	component := p.Component
	if component != "" && options.Flag("is_slave_node") {
		component += "-slave"
	}
	owner := rest.FindOwner(component, options.Text("auth_url", ""), hostname, string(resolv))
	config, err := rest.LoadTLS(m.path(options.Text(p.CertKey, "")), m.path(options.Text(p.KeyKey, "")), m.path(options.Text("ssl_ca_certs", "")), owner)
	if err != nil {
		return nil, err
	}
	// The gateway also encrypts its cookies with this key, and reads only RSA keys.
	if _, ok := config.Certificates[0].PrivateKey.(*rsa.PrivateKey); p.Component == "apigateway" && !ok {
		return nil, errors.New("decodePrivateKey: not an RSA key")
	}
	return config, nil
}

// openStore connects to the database and creates the tables, or requires that they exist.
func (m Machine) openStore(ctx context.Context, p servicespec.Spec, options servicespec.Values, tables []string) (*rest.Store, error) {
	db, err := rest.Open(ctx, options.Text("sql_connection", ""))
	if err != nil {
		return nil, err
	}
	slave := options.Flag("is_slave_node")
	if options.Flag("auto_sync_table") && !p.NeverSyncs && !slave {
		err = m.sync(ctx, db, p, tables)
	} else {
		err = m.inSync(ctx, db, p, tables)
	}
	if err == nil && !slave {
		hostname, _ := m.hostname()
		_, err = db.Insert(ctx, starts, rest.Record{"name": p.Name, "host": hostname, "version": m.imageVersion()}, "")
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// starts is the table that records each start.
const starts = "fakecloud_starts"

// sync creates and migrates the tables for this version of the program.
func (m Machine) sync(ctx context.Context, db *rest.Store, p servicespec.Spec, tables []string) error {
	if err := db.Sync(ctx, append(slices.Clone(tables), starts)); err != nil {
		return err
	}
	return db.Migrate(ctx, p.Name, m.imageVersion(), m.failure() == InMigration)
}

// inSync checks that the tables match this version of the program.
func (m Machine) inSync(ctx context.Context, db *rest.Store, p servicespec.Spec, tables []string) error {
	defined := schema.Tables(p.Name, m.imageVersion())
	if p.NeverSyncs {
		tables, defined = []string{"zones"}, schema.Expected(m.imageVersion())
	}
	if err := db.InSync(ctx, append(slices.Clone(tables), starts)); err != nil {
		return err
	}
	return db.Defined(ctx, defined)
}

// seed creates region's built-in records.
func seed(ctx context.Context, p servicespec.Spec, db *rest.Store) error {
	if p.Type != "compute_v2" {
		return nil
	}
	_, err := db.Insert(ctx, "cloudregions", rest.Record{"id": "default", "name": "Default", "provider": "OneCloud"}, "Default")
	if errors.Is(err, rest.ErrDuplicate) {
		return nil
	}
	return err
}

func endsAfterInit(p servicespec.Spec, options servicespec.Values) bool {
	if !options.Flag("exit_after_db_init") || p.IgnoresInit {
		return false
	}
	log.Print("Exit after database initialized")
	return true
}

func logIn(ctx context.Context, m Machine, options servicespec.Values) (*Client, error) {
	for _, key := range []string{"auth_url", "admin_user", "admin_password", "region"} {
		if options.Text(key, "") == "" {
			return nil, fmt.Errorf("auth.AsyncInit: missing %s", key)
		}
	}
	roots, err := rest.Authorities(m.path(options.Text("ssl_ca_certs", "")))
	if err != nil {
		return nil, err
	}
	session := New(Credentials{
		AuthURL: strings.TrimSuffix(options.Text("auth_url", ""), "/"),
		User:    options.Text("admin_user", ""), Password: options.Text("admin_password", ""),
		Domain: options.Text("admin_domain", "Default"), Project: options.Text("admin_project", "system"), Authorities: roots, Dial: m.Dial,
	})
	token, err := session.Login(ctx)
	if err != nil {
		return nil, fmt.Errorf("Auth manager init err: %w", err)
	}
	if _, found := token.Endpoint("identity", options.Text("session_endpoint_type", "internal"), options.Text("region", "")); !found {
		log.Printf("No valid internal endpoints for identity in region %s", options.Text("region", ""))
	}
	return session, nil
}

// checkNeeds checks the dependencies that a program requires at its start.
func checkNeeds(ctx context.Context, m Machine, p servicespec.Spec, options servicespec.Values, session *Client) error {
	if p.NeedsService != "" {
		id, err := session.ServiceID(ctx, p.NeedsService)
		if err != nil {
			return fmt.Errorf("finding service %s: %w", p.NeedsService, err)
		}
		if id == "" {
			return fmt.Errorf("No such service %s", p.NeedsService)
		}
	}
	if p.NeedsEndpoint != nil && !slices.ContainsFunc(p.NeedsEndpoint, func(t string) bool {
		_, found := session.Current().Endpoint(t, "internal", options.Text("region", ""))
		return found
	}) {
		return fmt.Errorf("no endpoint of %s", strings.Join(p.NeedsEndpoint, " or "))
	}
	switch p.Name {
	case "region", "cloudmon":
		return checkRawSocket(ctx)
	case "glance":
		return checkDirectory(m.path(options.Text("filesystem_store_datadir", "")))
	case "esxi-agent":
		if options.Text("listen_interface", "") != "eth0" {
			return fmt.Errorf("listen_interface %q: no such interface", options.Text("listen_interface", ""))
		}
	}
	return nil
}

// checkRawSocket opens the socket with which the real program pings hosts (region) and addresses (cloudmon).
func checkRawSocket(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return nil // a test of a developer; in pods it is root
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "ip4:icmp", "0.0.0.0")
	if err != nil {
		return fmt.Errorf("opening socket for pings, which needs NET_RAW: %w", err)
	}
	return conn.Close()
}

func checkDirectory(dir string) error {
	if dir == "" {
		return errors.New("missing FilesystemStoreDatadir")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making FilesystemStoreDatadir: %w", err)
	}
	probe := filepath.Join(dir, ".fakecloud")
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		return fmt.Errorf("writing to FilesystemStoreDatadir: %w", err)
	}
	return os.Remove(probe)
}

// checkFiles reads the files in the arguments without interpreting them.
func (m Machine) checkFiles(args []string) error {
	for i, arg := range args {
		if strings.HasSuffix(arg, "conf") && strings.HasPrefix(arg, "-") && i+1 < len(args) {
			if _, err := os.ReadFile(m.path(args[i+1])); err != nil {
				return fmt.Errorf("reading configuration: %w", err)
			}
		}
	}
	return nil
}

func (m Machine) stayUp(ctx context.Context, p servicespec.Spec, err error) error {
	if err != nil {
		return err
	}
	log.Printf("%s is up", p.Name)
	m.isUp(ctx)
	<-ctx.Done()
	log.Print("Service stopped.")
	return nil
}

func serve(ctx context.Context, m Machine, p servicespec.Spec, options servicespec.Values, serverTLS *tls.Config, routes rest.Routes) error {
	ping := rest.Ping(p.OpenDefaults, options.List("default_handlers_whitelist_user_agents"))
	handler := m.bears(append(ping, routes...))
	address := cmp.Or(m.Address, options.Text("address", ""))
	listeners := []rest.Listener{{Address: address, Port: options.Number(p.PortKey, p.Port), TLS: serverTLS, Handler: handler}}
	if p.SecondPortKey != "" {
		second := handler
		if p.Role != servicespec.Identity {
			second = ping
		}
		listeners = append(listeners, rest.Listener{Address: address, Port: options.Number(p.SecondPortKey, p.SecondPort), TLS: serverTLS, Handler: second})
	}
	err := rest.Serve(ctx, listeners, func() {
		for _, l := range listeners {
			log.Printf("app.ServeForeverExtended Start listen on %s, isMaster: %t", l, !options.Flag("is_slave_node"))
		}
		m.isUp(ctx)
	})
	if err != nil {
		return err
	}
	log.Print("Service stopped.")
	return nil
}

func (m Machine) imageVersion() string {
	return cmp.Or(m.getenv(servicespec.VersionVariable), "v0.0.0-fakecloud")
}
