# Instruction sets of the CPU backend: only the files of src/backend/cpu/isa are compiled with more than the build's own
# flags; src/backend/cpu/isa.cpp chooses among them at run time.
function(kapitsa_isa name)
  set(options ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 takes the deliberately undefined operands of its own AVX-512 intrinsics for mistakes.
    list(APPEND options -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(src/backend/cpu/isa/${name}.cpp PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

# The portable kernels are for machines without any of the sets below, and -O3 takes half a minute to make nothing of them.
set_source_files_properties(src/backend/cpu/isa/scalar.cpp PROPERTIES COMPILE_OPTIONS "-O2")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  kapitsa_isa(avx2 -mavx2 -mfma -mf16c)
  kapitsa_isa(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" AND NOT APPLE)
  kapitsa_isa(neon -march=armv8.2-a+dotprod)
endif()
