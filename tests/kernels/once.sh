# Once a command succeeds, or two minutes have passed: what is missing then is judged.
once() { # COMMAND…
	n=0
	until "$@" || [ $n -ge 120 ]; do
		sleep 1
		n=$((n + 1))
	done
}
