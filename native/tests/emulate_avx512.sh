#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run the unit tests with the AVX-512 kernels in an emulated processor that has AVX-512, on a machine that has not.
#
#   native/tests/emulate_avx512.sh [FOLDER]        about five minutes; FOLDER (default: a new one in /tmp) keeps everything
#
# Needs Debian's bochs bochsbios bochs-term vgabios isolinux syslinux-common xorriso busybox-static cpio, and fetches a
# kernel with apt-get download. Bochs 2.7 boots Linux as a Skylake-X, which has AVX-512 F, BW, DQ and VL but not VNNI:
# the tests are built with vpdpwssd as vpmaddwd + vpaddd. Its models with VNNI do not get that far.
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$(mktemp -d)}
mkdir -p "$folder/root" "$folder/iso/isolinux" "$folder/kernel"
cd "$folder"
echo "in $folder"

cmake -S "$repository" -B build -DLITESMITH_BUILD_TESTS=ON -DLITESMITH_TEST_REAL_AVX512=ON \
      -DCMAKE_EXE_LINKER_FLAGS=-static > build.log
cmake --build build --target litesmith_unit_tests >> build.log 2>&1

if ! ls kernel/boot/vmlinuz-* > /dev/null 2>&1; then
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p')
  (cd kernel && apt-get download "$package" && dpkg-deb -x "$package"_*.deb .)
fi

cp build/native/litesmith_unit_tests /bin/busybox root/
cat > root/init << 'END'
#!/busybox sh
/busybox mkdir /proc
/busybox mount -t proc proc /proc
/busybox grep -m1 'model name' /proc/cpuinfo
/busybox grep -m1 -o avx512bw /proc/cpuinfo
/litesmith_unit_tests
echo "exit code $?"
/busybox sleep 1
/busybox poweroff -f
END
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet | gzip -1) > iso/initrd
cp kernel/boot/vmlinuz-* iso/vmlinuz
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 iso/isolinux/
# The emulated processor miscounts the compact form of its saved registers: the plain form.
cat > iso/isolinux/isolinux.cfg << 'END'
DEFAULT tests
LABEL tests
  KERNEL /vmlinuz
  APPEND initrd=/initrd rdinit=/init console=ttyS0 quiet mitigations=off nokaslr noxsaves clearcpuid=pku,xsavec,xsaves nopcid lpj=4000000 tsc=reliable apparmor=0 lsm=yama panic=-1
END
xorriso -as mkisofs -quiet -o tests.iso -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table iso 2> /dev/null

cat > bochsrc << 'END'
cpu: model=corei7_skylake_x, count=1, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest=512, host=512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=tests.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial.log
display_library: term
log: bochs.log
clock: sync=none, time0=1000000000
END
echo c > start  # Debian's build waits in its debugger
rm -f serial.log
script -qec "env TERM=xterm bochs -q -f bochsrc -rc start" /dev/null < /dev/null > screen.log 2>&1 &
emulator=$!
trap 'kill $emulator 2> /dev/null || true' EXIT
waited=0
until grep -q 'exit code' serial.log 2> /dev/null; do
  sleep 2
  waited=$((waited + 2))
  if [ $waited -gt 900 ] || ! kill -0 $emulator 2> /dev/null; then
    echo "the emulator ended or hung: see $folder/serial.log" >&2
    exit 1
  fi
done
cat serial.log
for line in avx512bw 'tier avx512 for tests: compared' 'all passed' 'exit code 0'; do
  grep -q "$line" serial.log || { echo "no line '$line'" >&2; exit 1; }
done
