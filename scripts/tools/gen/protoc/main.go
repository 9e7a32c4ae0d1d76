// SPDX-License-Identifier: Apache-2.0

// Program protoc compiles one .proto file and passes it to code generators, as Google's protoc does. It comes from the Go module proxy, so that generating
// code needs no distribution package.
//
//	protoc FILE PLUGIN...
//
// Plugins write their output next to FILE.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: protoc FILE PLUGIN...")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "protoc:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, plugins []string) error {
	dir, base := filepath.Split(file)
	c := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{dir}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(ctx, base)
	if err != nil {
		return err
	}
	req, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{base},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	})
	if err != nil {
		return err
	}
	for _, p := range plugins {
		if err := generate(ctx, p, req, dir); err != nil {
			return fmt.Errorf("running %s: %w", p, err)
		}
	}
	return nil
}

func generate(ctx context.Context, plugin string, req []byte, dir string) error {
	c := exec.CommandContext(ctx, plugin)
	c.Stdin, c.Stderr = bytes.NewReader(req), os.Stderr
	out, err := c.Output()
	if err != nil {
		return err
	}
	var res pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &res); err != nil {
		return err
	}
	if res.Error != nil {
		return fmt.Errorf("%s", res.GetError())
	}
	for _, f := range res.File {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
