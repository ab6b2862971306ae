package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/draw"
)

func newDraw() *cobra.Command {
	var out output
	var tuning tuning
	var algorithmName, shape string
	var shards, add int
	cmd := &cobra.Command{
		Use:   "draw",
		Short: "Draw a ring or a range map in shard colours",
		Long: `Draw the map that an algorithm makes, as SVG: a ring, or a strip that lays the hash space out
in lines. With --add the map before and after the change stand side by side.`,
		Example: `  cleave placement draw --shards 3 --output ring.svg
  cleave placement draw --shards 300 --shape strip --output strip.svg
  cleave placement draw --shards 8 --add 1 --algorithm minimal --output change.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), checkCount("shards", shards, 1), checkCount("add", add, 0)); err != nil {
				return err
			}
			drawn, known := map[string]draw.Shape{"ring": draw.Ring, "strip": draw.Strip}[shape]
			if !known {
				return wrongInputf("unknown shape %q: use ring or strip", shape)
			}
			algorithm, err := tuning.algorithm(algorithmName)
			if err != nil {
				return err
			}
			panels, err := panels(algorithm, shards, add)
			if err != nil {
				return wrongInput(err)
			}
			title := fmt.Sprintf("%s, %d shards", algorithmName, shards)
			return out.write(cmd, func(w io.Writer) error { return draw.Maps(w, title, drawn, panels...) })
		},
	}
	out.flags(cmd, formatSVG)
	tuning.flags(cmd)
	cmd.Flags().StringVar(&algorithmName, "algorithm", "ring", "algorithm: "+strings.Join(algorithmNames(), ", "))
	cmd.Flags().IntVar(&shards, "shards", 3, "shards")
	cmd.Flags().IntVar(&add, "add", 0, "shards to add in a second picture beside the first")
	cmd.Flags().StringVar(&shape, "shape", "ring", "ring or strip")
	complete(cmd, "algorithm", algorithmNames())
	complete(cmd, "shape", []string{"ring", "strip"})
	return cmd
}

func panels(algorithm placement.Algorithm, shards, add int) ([]draw.Panel, error) {
	all := placement.Numbered("shard-", shards+add)
	before, err := algorithm.Ranges(nil, all[:shards])
	if err != nil {
		return nil, err
	}
	panels := []draw.Panel{{Title: fmt.Sprintf("%d ranges", before.Len()), Map: before}}
	if add == 0 {
		return panels, nil
	}
	after, err := algorithm.Ranges(before, all)
	if err != nil {
		return nil, err
	}
	moved := before.Diff(after).Extent.Share()
	return append(panels, draw.Panel{Title: fmt.Sprintf("%d added: %.2f %% of the space moves", add, 100*moved), Map: after}), nil
}
