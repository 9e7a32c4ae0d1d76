// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// HostsDir is where containerd looks for the configuration of registries.
const HostsDir = "/etc/containerd/certs.d"

// Endpoint is a server with images of a registry.
type Endpoint struct {
	// Root is the address of its API: "https://registry-1.docker.io/v2".
	Root *url.URL
	// Mirror marks a server other than the registry itself; requests to it name the registry of the image.
	Mirror bool
	// CA holds CA certificates in PEM, in addition to those of the machine.
	CA []byte
	// Client holds client certificates and their keys, in PEM.
	Client     [][2][]byte
	SkipVerify bool
	Header     http.Header
}

// hostsFile holds the relevant part of containerd's hosts.toml. Source: the page "Registry Configuration" of https://github.com/containerd/containerd
type hostsFile struct {
	Server string `toml:"server"`
	hostEntry
	Hosts map[string]hostEntry `toml:"host"`
}

type hostEntry struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`     // a path, or a list
	Client       any            `toml:"client"` // a path of both certificate and key, or a list of such paths, or of pairs
	SkipVerify   bool           `toml:"skip_verify"`
	OverridePath bool           `toml:"override_path"`
	Header       map[string]any `toml:"header"` // a value, or a list
}

// Files reads the files of a machine.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]fs.DirEntry, error)
}

// Machine returns a function that returns a registry's endpoints according to the files below HostsDir. As in containerd, the first existing directory
// counts; one without hosts.toml holds certificates as in docker: *.crt of authorities, *.cert and *.key of the client.
func Machine(machine Files) func(registry string) ([]Endpoint, error) {
	return func(registry string) ([]Endpoint, error) {
		for _, name := range []string{port.ReplaceAllString(registry, "_${1}_"), registry, "_default"} {
			dir := path.Join(HostsDir, name)
			read := func(name string) ([]byte, error) {
				if !path.IsAbs(name) {
					name = path.Join(dir, name)
				}
				return machine.ReadFile(name)
			}
			raw, err := read("hosts.toml")
			if errors.Is(err, fs.ErrNotExist) {
				entries, err := machine.ReadDir(dir)
				if err != nil {
					continue
				}
				return own(registry, certificates(entries), read)
			}
			var out []Endpoint
			if err == nil {
				out, err = parseHosts(raw, registry, read)
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", path.Join(dir, "hosts.toml"), err)
			}
			return out, nil
		}
		return own(registry, hostEntry{}, machine.ReadFile)
	}
}

// own returns the registry itself. With certificates, one on this machine uses HTTPS, too.
func own(registry string, h hostEntry, read func(string) ([]byte, error)) ([]Endpoint, error) {
	address := Upstream(registry)
	if len(texts(h.CA))+len(pairs(h.Client)) > 0 {
		address = strings.Replace(address, "http://", "https://", 1)
	}
	e, err := endpoint(address, registry, h, read)
	return []Endpoint{e}, err
}

// certificates returns the settings that the files of a directory without hosts.toml stand for.
func certificates(entries []fs.DirEntry) hostEntry {
	var ca, client []any
	for _, e := range entries {
		switch name, suffix := e.Name(), path.Ext(e.Name()); suffix {
		case ".crt":
			ca = append(ca, name)
		case ".cert":
			pair := []any{name}
			if key := strings.TrimSuffix(name, suffix) + ".key"; slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == key }) {
				pair = append(pair, key)
			}
			client = append(client, pair)
		}
	}
	return hostEntry{CA: ca, Client: client}
}

// Certificates returns the lines of hosts.toml for such files: containerd ignores them beside a hosts.toml.
func Certificates(machine Files, registry string) (lines string) {
	entries, err := machine.ReadDir(path.Join(HostsDir, registry))
	if err != nil {
		return ""
	}
	c := certificates(entries)
	for _, of := range []struct {
		key  string
		list any
	}{{"ca", c.CA}, {"client", c.Client}} {
		if raw, err := json.Marshal(of.list); err == nil && string(raw) != "null" { // such JSON is TOML, too
			lines += of.key + " = " + string(raw) + "\n"
		}
	}
	return lines
}

var port = regexp.MustCompile(`:(\d+)$`)

// parseHosts returns the mirrors that can resolve tags, then the registry itself.
func parseHosts(raw []byte, registry string, read func(string) ([]byte, error)) ([]Endpoint, error) {
	var f hostsFile
	if err := toml.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	var out []Endpoint
	for _, address := range inOrder(raw) {
		h := f.Hosts[address]
		if len(h.Capabilities) > 0 && !slices.Contains(h.Capabilities, "resolve") {
			continue
		}
		e, err := endpoint(address, registry, h, read)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	if len(f.hostEntry.Capabilities) > 0 && !slices.Contains(f.hostEntry.Capabilities, "resolve") {
		return out, nil
	}
	e, err := endpoint(cmp.Or(f.Server, Upstream(registry)), registry, f.hostEntry, read)
	return append(out, e), err
}

// inOrder returns the addresses of the mirrors in the order of the file, in which containerd asks them.
func inOrder(raw []byte) (out []string) {
	var p unstable.Parser
	p.Reset(raw)
	for p.NextExpression() {
		if p.Expression().Kind != unstable.Table {
			continue
		}
		var parts []string
		for key := p.Expression().Key(); key.Next(); {
			parts = append(parts, string(key.Node().Data))
		}
		if len(parts) > 1 && parts[0] == "host" && !slices.Contains(out, parts[1]) {
			out = append(out, parts[1])
		}
	}
	return out
}

// Upstream returns the address of a registry without mirror.
func Upstream(registry string) string {
	if registry == DockerHub {
		return "https://registry-1.docker.io"
	}
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return "http://" + registry
	}
	return "https://" + registry
}

func endpoint(address, registry string, h hostEntry, read func(string) ([]byte, error)) (Endpoint, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return Endpoint{}, fmt.Errorf("%q is not the address of a registry", address)
	}
	if !h.OverridePath && !strings.HasSuffix(u.Path, "/v2") {
		u.Path = path.Join("/", u.Path, "v2")
	}
	e := Endpoint{Root: u, Mirror: u.Host != registry && address != Upstream(registry), SkipVerify: h.SkipVerify, Header: http.Header{}}
	for _, file := range texts(h.CA) {
		pem, err := read(file)
		if err != nil {
			return Endpoint{}, err
		}
		e.CA = append(append(e.CA, pem...), '\n')
	}
	for _, pair := range pairs(h.Client) {
		var pem [2][]byte
		for i, file := range pair {
			if pem[i], err = read(file); err != nil {
				return Endpoint{}, err
			}
		}
		e.Client = append(e.Client, pem)
	}
	for key, values := range h.Header {
		e.Header[http.CanonicalHeaderKey(key)] = texts(values)
	}
	return e, nil
}

// texts converts a string or a list of strings.
func texts(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, texts(e)...)
		}
	}
	return out
}

// pairs returns the files of certificates and their keys.
func pairs(v any) (out [][2]string) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		if both := texts(e); len(both) > 0 {
			out = append(out, [2]string{both[0], both[len(both)-1]})
		}
	}
	return out
}

func (e Endpoint) transport(proxy func(*http.Request) (*url.URL, error)) (http.RoundTripper, error) {
	if len(e.CA) == 0 && len(e.Client) == 0 && !e.SkipVerify && proxy == nil {
		return http.DefaultTransport, nil
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if proxy != nil {
		t.Proxy = proxy
	}
	if len(e.CA) == 0 && len(e.Client) == 0 && !e.SkipVerify {
		return t, nil
	}
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: e.SkipVerify} //nolint:gosec // skip_verify in hosts.toml
	if len(e.CA) > 0 {
		pool, err := x509.SystemCertPool() // a token server or a storage of blobs may have a public authority
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(e.CA) {
			return nil, errors.New("its file of authorities contains no certificate")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	for _, pem := range e.Client {
		c, err := tls.X509KeyPair(pem[0], pem[1])
		if err != nil {
			return nil, fmt.Errorf("reading its client certificate: %w", err)
		}
		t.TLSClientConfig.Certificates = append(t.TLSClientConfig.Certificates, c)
	}
	return t, nil
}
