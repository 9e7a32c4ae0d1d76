// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archived reads one image of an archive. It returns the image and its name, including the registry.
func archived(open tarball.Opener, ref string) (string, v1.Image, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", nil, err
	}
	img, err := tarball.Image(open, &tag)
	return strings.Replace(tag.Name(), name.DefaultRegistry+"/", "docker.io/", 1), img, err
}

// inflate opens an archive, which may be compressed with gzip.
func inflate(open tarball.Opener) tarball.Opener {
	return func() (io.ReadCloser, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(f)
		if magic, _ := r.Peek(2); string(magic) != "\x1f\x8b" {
			return stream{r, f}, nil
		}
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return stream{z, f}, nil
	}
}

type stream struct {
	io.Reader
	io.Closer
}
