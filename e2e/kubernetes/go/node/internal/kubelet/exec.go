package kubelet

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// ExecInContainer runs a process of this machine, so that `kubectl cp` finds a real tar. There is no terminal: with -t the
// process gets pipes all the same, and its stderr goes where its stdout goes.
func (containerRuntime) ExecInContainer(
	_ context.Context, _, _, _ string, argv []string,
	in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if len(argv) == 0 {
		return errors.New("no command was given")
	}
	command := exec.Command(argv[0], argv[1:]...)
	// What runs in a container does not outlive its node. The kernel means the thread that started it, and Go ends threads
	// as it likes, but not one that is locked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stdout, command.Stderr = out, errOut
	if tty {
		command.Stderr = out
	}
	if err := start(command, in); err != nil {
		return err
	}
	err := command.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.ExitErrorWrapper{ExitError: exit}
	}
	return err
}

// start feeds stdin on the side: Wait would also wait for a copy that it started itself, and with it for a caller who
// keeps stdin open although the process has ended.
func start(command *exec.Cmd, in io.Reader) error {
	if in == nil {
		return command.Start()
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		defer stdin.Close()
		_, _ = io.Copy(stdin, in)
	}()
	return nil
}

// AttachContainer echoes stdin to stdout; without stdin there is one line.
func (containerRuntime) AttachContainer(
	_ context.Context, pod, _, container string,
	in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	if in == nil {
		_, err := io.WriteString(out, "attached to "+container+" of "+pod+"\n")
		return err
	}
	_, err := io.Copy(out, in)
	return err
}
