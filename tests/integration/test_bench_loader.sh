#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# leat bench loader: data and figures of the workloads, a drawing, no file left over.
. "$(dirname "$0")/cli.inc.sh"

bench=("$leat" bench loader --scale 0.0005)
d=$tmp/d
mkdir "$d"
is_empty() { [ -z "$(ls "$1")" ] || fail "something was left in $1: $(ls "$1")"; }
holds() { # FILTER: jq finds it true of stdout
	[ "$(jq "$1" <<<"$out")" = true ] || fail "not so: $1"
}

# The workloads have the shape that MLPerf Storage publishes.
shape() { # WORKLOAD FORMAT SAMPLES GOAL
	expect 0 "${bench[@]}" --json --workload "$1" --steps 3 --epochs 2 --accelerators 2 \
		--data "$d" --generate --plot "$tmp/$1.svg"
	json .workload "$1"
	json .format "$2"
	json .samples "$3"
	json .au_goal "$4"
	json .steps 3
	json '.per_epoch | length' 2
	is_empty "$d"
}
shape unet3d npz 42 0.9
# 3 steps of 2 x 7 samples: each sample is delivered in both epochs, and read once in each.
json '[.per_epoch[].samples] | add' 84
holds '.bytes_from_local_per_epoch * 2 >= .bytes_delivered'
holds '.bytes_from_servers_per_epoch == 0 and .bytes_from_peers_per_epoch == 0'
# By definition nominal is never above measured, and the epoch reports its utilisation as a whole.
holds '[.per_epoch[] | .au > 0 and .au <= 1 and .au_nominal <= .au] | all'
holds '[.per_epoch[] | (3 * 0.323 / .seconds - .au_with_first_step) | fabs < 0.02] | all'
holds '.wait_p50_s <= .wait_p99_s and .wait_p99_s <= .wait_max_s'
holds '.stalls_s | has("local") and has("verify") and has("server")'
shape resnet50 tfrecord 2502 0.9
json '[.per_epoch[].samples] | add' 4800
shape cosmoflow tfrecord 6 0.7
for w in unet3d resnet50 cosmoflow; do
	python3 - "$tmp/$w.svg" "$w" <<-'PY' || fail "the drawing of $w"
		import sys, xml.etree.ElementTree as tree
		root = tree.parse(sys.argv[1]).getroot()
		space = "{http://www.w3.org/2000/svg}"
		waits = [r for r in root.iter(space + "rect") if r.get("class") == "wait"]
		epochs = [l for l in root.iter(space + "line") if l.get("class") == "epoch"]
		assert len(waits) == 6 and len(epochs) == 1, (len(waits), len(epochs))
		assert all(float(r.get("height")) >= 0 for r in waits)
		assert all(0 < float(r.get("x")) < 960 for r in waits)
		assert any(sys.argv[2] in t.text for t in root.iter(space + "text"))
	PY
done

# Other programs can read the data that is kept, and another accelerator can use it again.
expect 0 "${bench[@]}" --workload unet3d --steps 2 --data "$d" --generate --keep
in_out "utilisation"
in_err "the data is in $d/leat-bench."
kept=$(echo "$d"/leat-bench.*)
/usr/bin/python3 - "$kept" <<-'PY' || fail "numpy does not read it"
	import glob, sys
	try:
	    import numpy
	except ImportError:
	    sys.exit(0)
	files = sorted(glob.glob(sys.argv[1] + "/*.npz"))
	assert len(files) == 14, files
	for i, f in enumerate(files):
	    z = numpy.load(f)
	    assert z["x"].dtype == numpy.uint8 and z["y"].tolist() == [i], (f, z["y"])
	sizes = {numpy.load(f)["x"].size for f in files}
	assert len(sizes) > 7 and max(sizes) < 400000, sizes
PY
expect 0 "${bench[@]}" --json --workload unet3d --type a100 --epochs 1 --data "$kept" --cold
json .type a100
holds '.per_epoch[0].seconds >= 2 * 0.636'
rm -r "$kept"

# Wrong arguments are reported.
expect 2 "${bench[@]}" --workload bert --data "$d"
in_err "unet3d, resnet50 or cosmoflow"
expect 2 "${bench[@]}" --workload unet3d
in_err "--data is missing"
expect 2 "${bench[@]}" --workload unet3d --data "$d" --scale 100
expect 2 "${bench[@]}" --workload unet3d --data "$d" --generate --steps 1
in_err "at least 2"
expect 9 "${bench[@]}" --workload unet3d --data "$d" --generate --plot "$tmp/none/w.svg"
in_err "none/w.svg"
expect 9 "${bench[@]}" --workload unet3d --data "$tmp/none" --generate
expect 9 "${bench[@]}" --workload unet3d --data "$tmp/none"
is_empty "$d"

# Ctrl-C while data is made, and while accelerators run.
interrupt() { # SECONDS ARGUMENTS
	"$leat" bench loader --data "$d" --generate "${@:2}" >"$tmp/out" 2>&1 &
	local pid=$!
	sleep "$1"
	ls "$d" | grep -q leat-bench || fail "it was over before the signal: $(cat "$tmp/out")"
	kill -INT $pid
	wait $pid
	[ $? = 75 ] || fail "an interrupted bench exits with 75: $(cat "$tmp/out")"
	is_empty "$d"
}
interrupt 0.3 --workload resnet50 --scale 0.2 --steps 100
interrupt 3 --workload unet3d --scale 0.0005 --steps 60

finish
