// A machine at a distance: what is sent to it through a TUN device comes back to this machine later, as from there.
//
//	10.95.0.1 ──▶ 10.95.0.2 ──▶ TUN ──(delay)──▶ 10.95.0.2 ──▶ 10.95.0.1
//
// Source and destination change places, which leaves all checksums as they were. So a server that listens on this
// machine's own address is reached at the other one, and each direction of a connection passes the device. A relay of
// connections could not do this, because the kernel takes them at once.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

const (
	maxPacket = 65_536
	tcp       = 6
	syn, ack  = 0x02, 0x10
)

type packet struct {
	bytes []byte
	due   time.Time
}

func main() {
	log.SetFlags(0)
	device := flag.String("device", "", "name of the TUN device, which is created")
	far := flag.String("far", "", "IPv4 address of the machine; packets to all others are dropped")
	delay := flag.Duration("delay", 0, "time that a packet takes, in each direction")
	losesSyn := flag.Bool("loses-syn", false, "the first SYN of each connection is lost")
	flag.Parse()
	address := netip.MustParseAddr(*far).As4()
	tun, err := open(*device)
	if err != nil {
		log.Fatal(err)
	}
	underway := make(chan packet, 10_000)
	go deliver(tun, underway)
	fmt.Println("device is open")
	sent := map[[12]byte]bool{} // addresses and ports of connections whose first SYN was lost
	buffer := make([]byte, maxPacket)
	for {
		length, err := syscall.Read(tun, buffer)
		if err != nil {
			log.Fatal(err)
		}
		bytes := slices.Clone(buffer[:length])
		if length < 20 || bytes[0]>>4 != 4 || [4]byte(bytes[16:20]) != address {
			continue
		}
		if *losesSyn && isFirstSyn(bytes, sent) {
			fmt.Println("SYN is lost")
			continue
		}
		source := [4]byte(bytes[12:16])
		copy(bytes[12:16], bytes[16:20])
		copy(bytes[16:20], source[:])
		underway <- packet{bytes, time.Now().Add(*delay)}
	}
}

// A device for IP packets without a header of the driver. It is gone with this process.
func open(device string) (int, error) {
	file, err := syscall.Open("/dev/net/tun", syscall.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("/dev/net/tun: %w", err)
	}
	var request [40]byte // struct ifreq
	copy(request[:syscall.IFNAMSIZ-1], device)
	binary.NativeEndian.PutUint16(request[syscall.IFNAMSIZ:], syscall.IFF_TUN|syscall.IFF_NO_PI)
	pointer := uintptr(unsafe.Pointer(&request))
	if _, _, code := syscall.Syscall(syscall.SYS_IOCTL, uintptr(file), syscall.TUNSETIFF, pointer); code != 0 {
		return 0, fmt.Errorf("TUNSETIFF %s: %w", device, code)
	}
	return file, nil
}

// All packets take the same time, so that they keep their order.
func deliver(tun int, underway <-chan packet) {
	for next := range underway {
		time.Sleep(time.Until(next.due))
		if _, err := syscall.Write(tun, next.bytes); err != nil {
			log.Print(err)
		}
	}
}

func isFirstSyn(bytes []byte, sent map[[12]byte]bool) bool {
	header := int(bytes[0]&0x0f) * 4
	if bytes[9] != tcp || len(bytes) < header+20 || bytes[header+13]&(syn|ack) != syn {
		return false
	}
	connection := [12]byte(append(append([]byte{}, bytes[12:20]...), bytes[header:header+4]...))
	isFirst := !sent[connection]
	sent[connection] = true
	return isFirst
}
