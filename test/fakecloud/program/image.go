// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// metaName is the header with which clients of glance name an image whose bytes are the body.
const metaName = "X-Image-Meta-Name"

// DeploySocket is host-deployer's socket on a node. The real one speaks gRPC there.
const DeploySocket = "/var/run/onecloud/deploy.sock"

// image returns the API of glance: records, and images whose bytes are in filesystem_store_datadir under their id.
func (s Service) image(ctx context.Context) rest.Routes {
	records := rest.Collection{Path: "/v1/images", Singular: "image", Owned: true, Required: named}
	upload := rest.Route{Method: http.MethodPost, Path: records.Path, Header: metaName, Handle: func(c rest.Call) (any, error) {
		who, err := s.admit(c, "images", rest.Create)
		if err != nil {
			return nil, err
		}
		return s.upload(ctx, c, who)
	}}
	return append(rest.Routes{upload}, s.plain(records)...)
}

func (s Service) upload(ctx context.Context, c rest.Call, who rest.Access) (any, error) {
	id := rest.NewID()
	path := filepath.Join(s.Options.Text("filesystem_store_datadir", ""), id)
	size, err := saveTo(s.Machine.path(path), c.Request.Body)
	if err != nil {
		return nil, fmt.Errorf("saving image: %w", err)
	}
	name := c.Header.Get(metaName)
	r, err := s.Store.Insert(c.Context(), "images", rest.Record{
		"id": id, "name": name, "status": "saving", "size": size, "location": "file://" + path, "tenant_id": who.Project, "domain_id": who.Domain,
	}, name)
	if err != nil {
		return nil, errors.Join(err, os.Remove(s.Machine.path(path)))
	}
	go s.finish(ctx, r, path)
	return map[string]any{"image": r}, nil
}

func saveTo(path string, from io.Reader) (int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644) //nolint:gosec // host-deployer reads it
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	return n, errors.Join(err, f.Close())
}

// finish converts an image and has host-deployer inspect it. An image whose conversion fails becomes killed. One that cannot be inspected becomes active.
func (s Service) finish(ctx context.Context, r rest.Record, path string) {
	changes := rest.Record{"status": "active"}
	if err := s.convert(ctx, path); err != nil {
		log.Printf("saveFailed: %v", err)
		changes = rest.Record{"status": "killed", "reason": err.Error()}
	} else if err := s.Machine.probe(ctx, path); err != nil {
		log.Printf("fail to doProbeImageInfo %v", err)
		changes["probe"] = err.Error()
	} else {
		changes["probe"] = "done"
	}
	if _, err := s.Store.Update(ctx, "images", r, changes); err != nil {
		log.Printf("updating image %s: %v", r.Text("id"), err)
	}
}

// convert creates the qcow2 image beside the uploaded one, in this container or, with enable_remote_executor, on the node, where the paths must be the same.
func (s Service) convert(ctx context.Context, path string) error {
	if !s.Options.Flag("enable_remote_executor") {
		from, err := os.Open(s.Machine.path(path))
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = saveTo(s.Machine.path(path+".qcow2"), from)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.executorTimeout())
	defer cancel()
	node := executor.Client{Socket: s.Machine.path(s.Options.Text("executor_socket_path", executor.DefaultSocket))}
	for _, argv := range [][]string{{"stat", "-c", "%s", path}, {"cp", path, path + ".qcow2"}} {
		if _, err := node.Run(ctx, exec.Command{Path: argv[0], Args: argv[1:]}); err != nil {
			return fmt.Errorf("NewRemoteCommandAsFarAsPossible with %s: %w", argv[0], err)
		}
	}
	return nil
}

func (s Service) executorTimeout() time.Duration {
	return time.Duration(s.Options.Number("executor_connect_timeout_seconds", 30)) * time.Second
}

// probe has host-deployer inspect a file. host-deployer sees only what is mounted on the node.
func (m Machine) probe(ctx context.Context, path string) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.path(DeploySocket))
	}, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://deployer/probe?path="+url.QueryEscape(path), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("ProbeImageInfo: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		return fmt.Errorf("ProbeImageInfo: %s", text)
	}
	return nil
}

// Deployer answers glance's requests to host-deployer: whether a file is readable here.
func Deployer(ctx context.Context, m Machine) error {
	socket := m.path(DeploySocket)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return fmt.Errorf("making the directory of the socket: %w", err)
	}
	if err := disk.Remove(socket); err != nil {
		return fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Query().Get("path")
		info, err := os.Stat(m.path(path))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, "%d", info.Size())
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
