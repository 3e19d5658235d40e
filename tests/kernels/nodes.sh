# Memory of which every page lies on a known node, before and after it moves.
cd /t
echo 0 >/proc/sys/kernel/numa_balancing
memprov run --output none --state-dir /run/nodes --set log=debug >>/out/nodes.log 2>&1 &
agent=$!
until memprov report --state-dir /run/nodes >/dev/null 2>&1; do sleep 1; done
tell() {
	memprov report --state-dir /run/nodes --output report-json --pid $1 >/out/nodes-$2.json 2>>/out/nodes.log
	memprov report --state-dir /run/nodes --output otlp-json --set export.detail=owners --pid $1 >/out/nodes-$2.otlp.json 2>>/out/nodes.log
	memprov report --state-dir /run/nodes --output table --pid $1 >/out/nodes-$2.txt 2>>/out/nodes.log
}
placed >/tmp/placed & placed=$!
until grep -q holds /tmp/placed; do sleep 1; done
tell $placed first
sleep 5
tell $placed before
kill -USR1 $placed
until grep -q moved /tmp/placed; do sleep 1; done
tell $placed after
cat /proc/$placed/numa_maps >/out/nodes.numa_maps
kill $placed
placed wrong >/tmp/wrong & wrong=$!
until grep -q holds /tmp/wrong; do sleep 1; done
tell $wrong first
sleep 5
tell $wrong wrong
kill -USR1 $wrong
until grep -q moved /tmp/wrong; do sleep 1; done
tell $wrong right
kill $wrong
placed large >/tmp/large & large=$!
until grep -q holds /tmp/large; do sleep 1; done
tell $large large
cat /proc/$large/numa_maps >/out/nodes-large.numa_maps
kill $large
kill $agent && wait $agent
