// Command gpu is what a node with GPUs runs beside Kubernetes' own programs, for GPUs that are none: the device
// plugin and the OCI runtime that puts devices into containers. It runs the program that it is called as
// (lab/binaries.py makes the links).
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	name := filepath.Base(os.Args[0])
	var err error
	switch name {
	case "nvidia-device-plugin":
		err = servePlugins(tableBeside(os.Args[0]))
	case "nvidia-container-runtime":
		err = runContainer(tableBeside(os.Args[0]), os.Args[1:], justInTime)
	case "nvidia-container-runtime.cdi":
		err = runContainer(tableBeside(os.Args[0]), os.Args[1:], namesOnly)
	case "nvidia-container-runtime.legacy":
		err = runContainer(tableBeside(os.Args[0]), os.Args[1:], legacy)
	default:
		err = fmt.Errorf("call me nvidia-device-plugin or nvidia-container-runtime, not %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
