// SPDX-License-Identifier: Apache-2.0

// Package clickhouse is a stand-in for a ClickHouse server in tests that cannot have a real one. It speaks the native protocol with the types of the
// client library, checks logins, and keeps databases, accounts and grants in memory. It accepts only the few statements that ocadm sends, in the same
// wording, and answers all others with the real server's syntax error. It has no tables, types, clusters, roles or quotas. It does not prove that a
// real server accepts the same statements.
package clickhouse

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/ClickHouse/ch-go/proto"

	"yunion.io/x/ocadm/test/require"
)

// AdminUser is the administrator's account.
const AdminUser = "default"

// Server is a running stand-in.
type Server struct {
	// AdminPassword is the password of AdminUser.
	AdminPassword string

	mu         sync.Mutex
	address    string
	listener   net.Listener
	conns      map[net.Conn]bool
	handlers   sync.WaitGroup
	databases  map[string]bool
	accounts   map[string]*account
	statements []string
	logins     int
}

type account struct {
	// hash is the password's hash in hexadecimal digits.
	hash string
	// grants maps databases to privileges; "" means all databases.
	grants map[string]map[string]bool
	// file reports whether the account is defined in the server's file and cannot be changed.
	file bool
}

// Start runs a stand-in on a loopback port until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		AdminPassword: "ClickHouse-admin-Pa55word", conns: map[net.Conn]bool{}, address: "127.0.0.1:0",
		databases: map[string]bool{"system": true, "default": true, "INFORMATION_SCHEMA": true, "information_schema": true},
	}
	s.accounts = map[string]*account{AdminUser: {hash: digest(s.AdminPassword), file: true}}
	require.NoError(t, s.Resume(t.Context()))
	t.Cleanup(s.Pause)
	return s
}

func digest(password string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(password)))
}

// Addr returns its address, which Pause and Resume keep.
func (s *Server) Addr() *net.TCPAddr {
	a, err := net.ResolveTCPAddr("tcp", s.address)
	if err != nil {
		panic(err) // it was the listener's own
	}
	return a
}

// Resume listens again after Pause. The stored data is unchanged.
func (s *Server) Resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listening as ClickHouse: %w", err)
	}
	s.listener, s.address = l, l.Addr().String()
	s.handlers.Go(func() { s.serve(l) })
	return nil
}

// Pause closes the port and every connection.
func (s *Server) Pause() {
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close()
	}
	s.listener = nil
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.handlers.Wait()
}

// SetAdminPassword changes the administrator's password. As on the real server, open connections stay open.
func (s *Server) SetAdminPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.AdminPassword, s.accounts[AdminUser].hash = password, digest(password)
}

// Statements returns the received statements, including failed ones.
func (s *Server) Statements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.statements...)
}

// Logins returns the number of connections, successful or not.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

func (s *Server) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.handlers.Go(func() {
			_ = s.talk(c) // the client hung up, or does not speak the protocol
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// conn is a connection after login.
type conn struct {
	net.Conn
	in      *proto.Reader
	out     proto.Buffer
	version int
	user    string
}

func (c *conn) flush() error {
	_, err := c.Write(c.out.Buf)
	c.out.Reset()
	return err
}

func (c *conn) fail(x *proto.Exception) error {
	c.out.PutByte(byte(proto.ServerCodeException))
	x.EncodeAware(&c.out, c.version)
	return c.flush()
}

func (s *Server) talk(raw net.Conn) error {
	c := &conn{Conn: raw, in: proto.NewReader(raw), version: proto.Version}
	if err := s.login(c); err != nil {
		return err
	}
	for {
		code, err := c.in.UVarInt()
		if err != nil {
			return err
		}
		switch proto.ClientCode(code) {
		case proto.ClientCodePing:
			c.out.PutByte(byte(proto.ServerCodePong))
			err = c.flush()
		case proto.ClientCodeQuery:
			err = s.query(c)
		default:
			return fmt.Errorf("packet %d is not known here", code)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Server) login(c *conn) error {
	code, err := c.in.UVarInt()
	if err != nil {
		return err
	}
	var hello proto.ClientHello
	if proto.ClientCode(code) != proto.ClientCodeHello {
		return errors.New("no greeting")
	}
	if err := hello.Decode(c.in); err != nil {
		return err
	}
	c.version, c.user = min(c.version, hello.ProtocolVersion), hello.User
	s.mu.Lock()
	s.logins++
	who, there := s.accounts[hello.User]
	ok := there && who.hash == digest(hello.Password)
	missing := !s.databases[hello.Database]
	s.mu.Unlock()
	switch {
	case !ok:
		return errors.Join(c.fail(exception(516, "%s: Authentication failed: password is incorrect, or there is no user with such name.", hello.User)), errors.New("refused"))
	case missing:
		return errors.Join(c.fail(exception(81, "Database %s does not exist", hello.Database)), errors.New("refused"))
	}
	(&proto.ServerHello{Name: "ClickHouse stand-in", Major: 26, Minor: 7, Revision: c.version, Timezone: "UTC", DisplayName: "stand-in"}).EncodeAware(&c.out, c.version)
	if err := c.flush(); err != nil {
		return err
	}
	if proto.FeatureAddendum.In(c.version) {
		_, err = c.in.Str() // a quota key
	}
	return err
}

// query handles a statement and the empty block that ends its data.
func (s *Server) query(c *conn) error {
	var q proto.Query
	if err := q.DecodeAware(c.in, c.version); err != nil {
		return err
	}
	code, err := c.in.UVarInt()
	if err != nil {
		return err
	}
	var data proto.ClientData
	var block proto.Block
	if proto.ClientCode(code) != proto.ClientCodeData {
		return errors.New("no data after the query")
	}
	if err := data.DecodeAware(c.in, c.version); err != nil {
		return err
	}
	if err := block.DecodeBlock(c.in, c.version, nil); err != nil {
		return err
	}
	answer, x := s.Run(c.user, q.Body)
	if x != nil {
		return c.fail(x)
	}
	if err := c.answer(answer); err != nil {
		return err
	}
	c.out.PutByte(byte(proto.ServerCodeEndOfStream))
	return c.flush()
}

// answer sends rows of strings; the first row holds the column names.
func (c *conn) answer(rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	columns := make([]proto.ColStr, len(rows[0]))
	input := make([]proto.InputColumn, len(rows[0]))
	for i, name := range rows[0] {
		for _, row := range rows[1:] {
			columns[i].Append(row[i])
		}
		input[i] = proto.InputColumn{Name: name, Data: &columns[i]}
	}
	c.out.PutByte(byte(proto.ServerCodeData))
	proto.ClientData{}.EncodeAware(&c.out, c.version) // the name of a table, as in the other direction
	return proto.Block{Columns: len(input), Rows: len(rows) - 1}.EncodeBlock(&c.out, c.version, input)
}
