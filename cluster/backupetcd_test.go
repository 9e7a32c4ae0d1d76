// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"go.etcd.io/bbolt"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)
