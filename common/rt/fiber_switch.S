/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context switch of fibers: void fiber_switch(void **ret_sp, void *sp).
 *
 * Saves only the registers that the ABI requires a callee to preserve; makes no system call. The
 * floating point control words are not saved: no fiber changes rounding. gdb_fibers.py and
 * fiber_init_frame in fiber.c depend on the order in which registers are saved.
 */
	.text

#if defined(__x86_64__)

	.globl	fiber_switch
	.hidden	fiber_switch
	.type	fiber_switch, @function
	.balign	16
fiber_switch:
	.cfi_startproc
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	/* Not ret: the return predictor would always be wrong here. */
	popq	%rcx
	jmp	*%rcx
	.cfi_endproc
	.size	fiber_switch, . - fiber_switch

	.globl	fiber_trampoline
	.hidden	fiber_trampoline
	.type	fiber_trampoline, @function
	.balign	16
fiber_trampoline:
	.cfi_startproc
	.cfi_undefined %rip	/* unwinding ends here */
	movq	%r12, %rdi
	call	*%r13
	ud2
	.cfi_endproc
	.size	fiber_trampoline, . - fiber_trampoline

#elif defined(__aarch64__)

	.globl	fiber_switch
	.hidden	fiber_switch
	.type	fiber_switch, %function
	.balign	16
fiber_switch:
	.cfi_startproc
	sub	sp, sp, #160
	stp	x19, x20, [sp, #0]
	stp	x21, x22, [sp, #16]
	stp	x23, x24, [sp, #32]
	stp	x25, x26, [sp, #48]
	stp	x27, x28, [sp, #64]
	stp	x29, x30, [sp, #80]
	stp	d8, d9, [sp, #96]
	stp	d10, d11, [sp, #112]
	stp	d12, d13, [sp, #128]
	stp	d14, d15, [sp, #144]
	mov	x9, sp
	str	x9, [x0]
	mov	sp, x1
	ldp	x19, x20, [sp, #0]
	ldp	x21, x22, [sp, #16]
	ldp	x23, x24, [sp, #32]
	ldp	x25, x26, [sp, #48]
	ldp	x27, x28, [sp, #64]
	ldp	x29, x30, [sp, #80]
	ldp	d8, d9, [sp, #96]
	ldp	d10, d11, [sp, #112]
	ldp	d12, d13, [sp, #128]
	ldp	d14, d15, [sp, #144]
	add	sp, sp, #160
	ret
	.cfi_endproc
	.size	fiber_switch, . - fiber_switch

	.globl	fiber_trampoline
	.hidden	fiber_trampoline
	.type	fiber_trampoline, %function
	.balign	16
fiber_trampoline:
	.cfi_startproc
	.cfi_undefined x30
	mov	x0, x19
	blr	x20
	brk	#0
	.cfi_endproc
	.size	fiber_trampoline, . - fiber_trampoline

#else
#error "fiber_switch.S knows x86-64 and aarch64 only"
#endif

	.section .note.GNU-stack,"",%progbits
