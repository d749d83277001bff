/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs access. A vmlinux.h would add 150,000 lines of one kernel;
 * the fields below are located in the running kernel by CO-RE in the host object, and by the ABI in
 * the calls object.
 */
#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;

/* Registers at a probe: the order is part of the kernel's ABI, so no relocation is needed. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};
#else
#error "unsupported architecture: the programs support the calling conventions of x86-64 and arm64"
#endif
