// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"yunion.io/x/ocadm/phases/config"
)

// CRISocket is the address of the node's container runtime.
func (h *Host) CRISocket() string { return cmp.Or(h.Config.Node.CRISocket, config.DefaultCRISocket) }

// CRI connects to the container runtime of the node. It connects with the first call, so it also succeeds where no runtime answers.
func (h *Host) CRI() (*grpc.ClientConn, error) {
	socket := h.Files.Path(strings.TrimPrefix(h.CRISocket(), "unix://"))
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connecting to the container runtime: %w", err)
	}
	return conn, nil
}
