// WgmmaInstruction<inputs, n> for all n: PTX takes every accumulator as an
// operand of its own. A thread has n / 2 of them, operands 0 to n / 2 - 1.
#pragma once

//===--- accumulators -----------------------------------------------------===//

/// Operands d[i] to d[i + 3].
#define TESSERA_FOUR(i)                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

// For each n: accumulators as the instruction names them, as operands, and the
// numbers of the operands after them.
#define TESSERA_NAMES_8 "%0, %1, %2, %3"
#define TESSERA_OPERANDS_8 TESSERA_FOUR(0)
#define TESSERA_AFTER_8 4, 5, 6, 7, 8, 9, 10
#define TESSERA_NAMES_16 TESSERA_NAMES_8 ", %4, %5, %6, %7"
#define TESSERA_OPERANDS_16 TESSERA_OPERANDS_8, TESSERA_FOUR(4)
#define TESSERA_AFTER_16 8, 9, 10, 11, 12, 13, 14
#define TESSERA_NAMES_24 TESSERA_NAMES_16 ", %8, %9, %10, %11"
#define TESSERA_OPERANDS_24 TESSERA_OPERANDS_16, TESSERA_FOUR(8)
#define TESSERA_AFTER_24 12, 13, 14, 15, 16, 17, 18
#define TESSERA_NAMES_32 TESSERA_NAMES_24 ", %12, %13, %14, %15"
#define TESSERA_OPERANDS_32 TESSERA_OPERANDS_24, TESSERA_FOUR(12)
#define TESSERA_AFTER_32 16, 17, 18, 19, 20, 21, 22
#define TESSERA_NAMES_40 TESSERA_NAMES_32 ", %16, %17, %18, %19"
#define TESSERA_OPERANDS_40 TESSERA_OPERANDS_32, TESSERA_FOUR(16)
#define TESSERA_AFTER_40 20, 21, 22, 23, 24, 25, 26
#define TESSERA_NAMES_48 TESSERA_NAMES_40 ", %20, %21, %22, %23"
#define TESSERA_OPERANDS_48 TESSERA_OPERANDS_40, TESSERA_FOUR(20)
#define TESSERA_AFTER_48 24, 25, 26, 27, 28, 29, 30
#define TESSERA_NAMES_56 TESSERA_NAMES_48 ", %24, %25, %26, %27"
#define TESSERA_OPERANDS_56 TESSERA_OPERANDS_48, TESSERA_FOUR(24)
#define TESSERA_AFTER_56 28, 29, 30, 31, 32, 33, 34
#define TESSERA_NAMES_64 TESSERA_NAMES_56 ", %28, %29, %30, %31"
#define TESSERA_OPERANDS_64 TESSERA_OPERANDS_56, TESSERA_FOUR(28)
#define TESSERA_AFTER_64 32, 33, 34, 35, 36, 37, 38
#define TESSERA_NAMES_72 TESSERA_NAMES_64 ", %32, %33, %34, %35"
#define TESSERA_OPERANDS_72 TESSERA_OPERANDS_64, TESSERA_FOUR(32)
#define TESSERA_AFTER_72 36, 37, 38, 39, 40, 41, 42
#define TESSERA_NAMES_80 TESSERA_NAMES_72 ", %36, %37, %38, %39"
#define TESSERA_OPERANDS_80 TESSERA_OPERANDS_72, TESSERA_FOUR(36)
#define TESSERA_AFTER_80 40, 41, 42, 43, 44, 45, 46
#define TESSERA_NAMES_88 TESSERA_NAMES_80 ", %40, %41, %42, %43"
#define TESSERA_OPERANDS_88 TESSERA_OPERANDS_80, TESSERA_FOUR(40)
#define TESSERA_AFTER_88 44, 45, 46, 47, 48, 49, 50
#define TESSERA_NAMES_96 TESSERA_NAMES_88 ", %44, %45, %46, %47"
#define TESSERA_OPERANDS_96 TESSERA_OPERANDS_88, TESSERA_FOUR(44)
#define TESSERA_AFTER_96 48, 49, 50, 51, 52, 53, 54
#define TESSERA_NAMES_104 TESSERA_NAMES_96 ", %48, %49, %50, %51"
#define TESSERA_OPERANDS_104 TESSERA_OPERANDS_96, TESSERA_FOUR(48)
#define TESSERA_AFTER_104 52, 53, 54, 55, 56, 57, 58
#define TESSERA_NAMES_112 TESSERA_NAMES_104 ", %52, %53, %54, %55"
#define TESSERA_OPERANDS_112 TESSERA_OPERANDS_104, TESSERA_FOUR(52)
#define TESSERA_AFTER_112 56, 57, 58, 59, 60, 61, 62
#define TESSERA_NAMES_120 TESSERA_NAMES_112 ", %56, %57, %58, %59"
#define TESSERA_OPERANDS_120 TESSERA_OPERANDS_112, TESSERA_FOUR(56)
#define TESSERA_AFTER_120 60, 61, 62, 63, 64, 65, 66
#define TESSERA_NAMES_128 TESSERA_NAMES_120 ", %60, %61, %62, %63"
#define TESSERA_OPERANDS_128 TESSERA_OPERANDS_120, TESSERA_FOUR(60)
#define TESSERA_AFTER_128 64, 65, 66, 67, 68, 69, 70
#define TESSERA_NAMES_136 TESSERA_NAMES_128 ", %64, %65, %66, %67"
#define TESSERA_OPERANDS_136 TESSERA_OPERANDS_128, TESSERA_FOUR(64)
#define TESSERA_AFTER_136 68, 69, 70, 71, 72, 73, 74
#define TESSERA_NAMES_144 TESSERA_NAMES_136 ", %68, %69, %70, %71"
#define TESSERA_OPERANDS_144 TESSERA_OPERANDS_136, TESSERA_FOUR(68)
#define TESSERA_AFTER_144 72, 73, 74, 75, 76, 77, 78
#define TESSERA_NAMES_152 TESSERA_NAMES_144 ", %72, %73, %74, %75"
#define TESSERA_OPERANDS_152 TESSERA_OPERANDS_144, TESSERA_FOUR(72)
#define TESSERA_AFTER_152 76, 77, 78, 79, 80, 81, 82
#define TESSERA_NAMES_160 TESSERA_NAMES_152 ", %76, %77, %78, %79"
#define TESSERA_OPERANDS_160 TESSERA_OPERANDS_152, TESSERA_FOUR(76)
#define TESSERA_AFTER_160 80, 81, 82, 83, 84, 85, 86
#define TESSERA_NAMES_168 TESSERA_NAMES_160 ", %80, %81, %82, %83"
#define TESSERA_OPERANDS_168 TESSERA_OPERANDS_160, TESSERA_FOUR(80)
#define TESSERA_AFTER_168 84, 85, 86, 87, 88, 89, 90
#define TESSERA_NAMES_176 TESSERA_NAMES_168 ", %84, %85, %86, %87"
#define TESSERA_OPERANDS_176 TESSERA_OPERANDS_168, TESSERA_FOUR(84)
#define TESSERA_AFTER_176 88, 89, 90, 91, 92, 93, 94
#define TESSERA_NAMES_184 TESSERA_NAMES_176 ", %88, %89, %90, %91"
#define TESSERA_OPERANDS_184 TESSERA_OPERANDS_176, TESSERA_FOUR(88)
#define TESSERA_AFTER_184 92, 93, 94, 95, 96, 97, 98
#define TESSERA_NAMES_192 TESSERA_NAMES_184 ", %92, %93, %94, %95"
#define TESSERA_OPERANDS_192 TESSERA_OPERANDS_184, TESSERA_FOUR(92)
#define TESSERA_AFTER_192 96, 97, 98, 99, 100, 101, 102
#define TESSERA_NAMES_200 TESSERA_NAMES_192 ", %96, %97, %98, %99"
#define TESSERA_OPERANDS_200 TESSERA_OPERANDS_192, TESSERA_FOUR(96)
#define TESSERA_AFTER_200 100, 101, 102, 103, 104, 105, 106
#define TESSERA_NAMES_208 TESSERA_NAMES_200 ", %100, %101, %102, %103"
#define TESSERA_OPERANDS_208 TESSERA_OPERANDS_200, TESSERA_FOUR(100)
#define TESSERA_AFTER_208 104, 105, 106, 107, 108, 109, 110
#define TESSERA_NAMES_216 TESSERA_NAMES_208 ", %104, %105, %106, %107"
#define TESSERA_OPERANDS_216 TESSERA_OPERANDS_208, TESSERA_FOUR(104)
#define TESSERA_AFTER_216 108, 109, 110, 111, 112, 113, 114
#define TESSERA_NAMES_224 TESSERA_NAMES_216 ", %108, %109, %110, %111"
#define TESSERA_OPERANDS_224 TESSERA_OPERANDS_216, TESSERA_FOUR(108)
#define TESSERA_AFTER_224 112, 113, 114, 115, 116, 117, 118
#define TESSERA_NAMES_232 TESSERA_NAMES_224 ", %112, %113, %114, %115"
#define TESSERA_OPERANDS_232 TESSERA_OPERANDS_224, TESSERA_FOUR(112)
#define TESSERA_AFTER_232 116, 117, 118, 119, 120, 121, 122
#define TESSERA_NAMES_240 TESSERA_NAMES_232 ", %116, %117, %118, %119"
#define TESSERA_OPERANDS_240 TESSERA_OPERANDS_232, TESSERA_FOUR(116)
#define TESSERA_AFTER_240 120, 121, 122, 123, 124, 125, 126
#define TESSERA_NAMES_248 TESSERA_NAMES_240 ", %120, %121, %122, %123"
#define TESSERA_OPERANDS_248 TESSERA_OPERANDS_240, TESSERA_FOUR(120)
#define TESSERA_AFTER_248 124, 125, 126, 127, 128, 129, 130
#define TESSERA_NAMES_256 TESSERA_NAMES_248 ", %124, %125, %126, %127"
#define TESSERA_OPERANDS_256 TESSERA_OPERANDS_248, TESSERA_FOUR(124)
#define TESSERA_AFTER_256 128, 129, 130, 131, 132, 133, 134

//===--- one instruction --------------------------------------------------===//

// Operands after the accumulators: for run(d, a, b, …) 0 a, 1 b, 2 whether it
// accumulates, then the majors; with A in registers 0 to 3 a, 4 b, and 5, 6
// likewise.
#define TESSERA_WGMMA_WIDE(inputs, n, types)                                   \
  TESSERA_WGMMA_MAKE(inputs, n, types, TESSERA_WGMMA_MAJORS, TESSERA_AFTER_##n)
#define TESSERA_WGMMA_NARROW(inputs, n, types)                                 \
  TESSERA_WGMMA_MAKE(inputs, n, types, TESSERA_WGMMA_NO_MAJORS,                \
                     TESSERA_AFTER_##n)
#define TESSERA_WGMMA_MAKE(...) TESSERA_WGMMA_STRUCT(__VA_ARGS__)
#define TESSERA_WGMMA_MAJORS(text) text
#define TESSERA_WGMMA_NO_MAJORS(text) ""

#define TESSERA_WGMMA_TEXT(n, types, operands, predicate, majors)              \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %" #predicate ", 0;\n"                     \
  "wgmma.mma_async.sync.aligned.m64n" #n types " {" TESSERA_NAMES_##n          \
      "}, " operands ", p, 1, 1" majors ";\n}"

#define TESSERA_WGMMA_STRUCT(inputs, n, types, majors, p0, p1, p2, p3, p4, p5, \
                             p6)                                               \
  template <> struct WgmmaInstruction<Inputs::inputs, n> {                     \
    template <bool A, bool B>                                                  \
    static TESSERA_DEVICE void run(float (&d)[n / 2], uint64_t a, uint64_t b,  \
                                   int accumulates) {                          \
      asm volatile(TESSERA_WGMMA_TEXT(n, types, "%" #p0 ", %" #p1, p2,         \
                                      majors(", %" #p3 ", %" #p4))             \
                   : TESSERA_OPERANDS_##n                                      \
                   : "l"(a), "l"(b), "r"(accumulates), "n"(A), "n"(B));        \
    }                                                                          \
    template <bool B>                                                          \
    static TESSERA_DEVICE void run(float (&d)[n / 2], const FragmentA &a,      \
                                   uint64_t b, int accumulates) {              \
      asm volatile(TESSERA_WGMMA_TEXT(n, types,                                \
                                      "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3   \
                                      "}, %" #p4,                              \
                                      p5, majors(", %" #p6))                   \
                   : TESSERA_OPERANDS_##n                                      \
                   : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]),   \
                     "l"(b), "r"(accumulates), "n"(B));                        \
    }                                                                          \
  };

//===--- all of them ------------------------------------------------------===//

#define TESSERA_WGMMA_SOME(one, inputs, types, n, m, l, k)                     \
  one(inputs, n, types) one(inputs, m, types) one(inputs, l, types)            \
      one(inputs, k, types)
// clang-format off
#define TESSERA_WGMMA_ALL(one, inputs, types)                                  \
  TESSERA_WGMMA_SOME(one, inputs, types, 8, 16, 24, 32)                        \
  TESSERA_WGMMA_SOME(one, inputs, types, 40, 48, 56, 64)                       \
  TESSERA_WGMMA_SOME(one, inputs, types, 72, 80, 88, 96)                       \
  TESSERA_WGMMA_SOME(one, inputs, types, 104, 112, 120, 128)                   \
  TESSERA_WGMMA_SOME(one, inputs, types, 136, 144, 152, 160)                   \
  TESSERA_WGMMA_SOME(one, inputs, types, 168, 176, 184, 192)                   \
  TESSERA_WGMMA_SOME(one, inputs, types, 200, 208, 216, 224)                   \
  TESSERA_WGMMA_SOME(one, inputs, types, 232, 240, 248, 256)
// clang-format on

#define TESSERA_WGMMA(inputs) TESSERA_WGMMA_##inputs
#define TESSERA_WGMMA_bf16                                                     \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_WIDE, bf16, "k16.f32.bf16.bf16")
#define TESSERA_WGMMA_f16                                                      \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_WIDE, f16, "k16.f32.f16.f16")
#define TESSERA_WGMMA_tf32                                                     \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_NARROW, tf32, "k8.f32.tf32.tf32")
#define TESSERA_WGMMA_e4m3                                                     \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_NARROW, e4m3, "k32.f32.e4m3.e4m3")
#define TESSERA_WGMMA_e4m3e5m2                                                 \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_NARROW, e4m3e5m2, "k32.f32.e4m3.e5m2")
#define TESSERA_WGMMA_e5m2e4m3                                                 \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_NARROW, e5m2e4m3, "k32.f32.e5m2.e4m3")
#define TESSERA_WGMMA_e5m2                                                     \
  TESSERA_WGMMA_ALL(TESSERA_WGMMA_NARROW, e5m2, "k32.f32.e5m2.e5m2")
