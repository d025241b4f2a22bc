package promrig

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the program when this process exits for any reason.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
