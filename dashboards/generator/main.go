// Command dashboards writes memprov's dashboards for Grafana: generator DIRECTORY [check]
//
// With check it writes nothing, and fails unless the files are what it would write and keep to Grafana's schema without
// a field that the schema does not know.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: generator DIRECTORY [check]")
		os.Exit(64)
	}
	if err := run(os.Args[1], len(os.Args) == 3); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(directory string, check bool) error {
	plugins.RegisterDefaultPlugins()
	for _, one := range []board{owners, numa, evidence} {
		path := filepath.Join(directory, one.name+".json")
		made, err := one.json()
		if err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := valid(made); err != nil {
			return fmt.Errorf("%s against Grafana's schema: %w", path, err)
		}
		if !check {
			if err := os.WriteFile(path, made, 0o644); err != nil {
				return err
			}
			continue
		}
		is, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := valid(is); err != nil {
			return fmt.Errorf("%s against Grafana's schema: %w", path, err)
		}
		if !bytes.Equal(is, made) {
			return fmt.Errorf("%s is not what its description makes: run the generator again", path)
		}
	}
	return nil
}

// valid reads a dashboard with its panels and queries, and refuses what the schema does not have.
func valid(document []byte) error {
	var read dashboard.Dashboard
	// Where nothing is wrong it gives a list of errors all the same, an empty one.
	var wrong cog.BuildErrors
	if err := read.UnmarshalJSONStrict(document); err != nil && !(errors.As(err, &wrong) && len(wrong) == 0) {
		return err
	}
	return read.Validate()
}

func (b board) json() ([]byte, error) {
	built, err := b.build()
	if err != nil {
		return nil, err
	}
	made, err := json.MarshalIndent(built, "", "  ")
	return append(made, '\n'), err
}
