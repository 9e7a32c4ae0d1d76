// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"context"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/mysql"
)

// writers write numbers to a server through its link, as services do, and remember the acknowledged ones.
type writers struct {
	mu    sync.Mutex
	acked []int
	stop  context.CancelFunc
	wait  sync.WaitGroup
}

func (p *pair) write(from int) *writers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{stop: cancel}
	for k := range 4 {
		w.wait.Go(func() {
			for i := from + k; ctx.Err() == nil; i += 4 {
				for _, s := range dbpair.Servers() {
					if p.insert(ctx, s, i) == nil {
						w.mu.Lock()
						w.acked = append(w.acked, i)
						w.mu.Unlock()
						break
					}
				}
			}
		})
	}
	return w
}

func (p *pair) insert(ctx context.Context, server string, i int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	db, err := mysql.Open(ctx, mysql.Config{Host: "127.0.0.1", Port: p.nodes[server].link.port, User: "root", Password: password, TLS: mysql.TLSRequired, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, "INSERT INTO t.n VALUES (?)", i)
	return err
}

func (w *writers) end() []int {
	w.stop()
	w.wait.Wait()
	return w.acked
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// lost returns the acknowledged numbers that a server does not have.
func (p *pair) lost(acked []int, server string) (out []int) {
	p.t.Helper()
	have := p.numbers(server)
	for _, i := range acked {
		if !have[i] {
			out = append(out, i)
		}
	}
	return out
}
