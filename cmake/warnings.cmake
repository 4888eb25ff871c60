# kapitsa_compile_options(target): the warnings and floating-point rules of all our code.
function(kapitsa_compile_options target)
  set(options -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
    # Designated initialisers leave out what keeps its default.
    -Wno-missing-field-initializers
    # Results must not depend on where the compiler chooses to fuse a multiply and an add.
    -ffp-contract=off)
  # nvcc has options of its own (cmake/cuda.cmake).
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
  # std::stable_sort of libstdc++ 12 calls what C++17 deprecates, and clang says so in our files.
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wno-deprecated-declarations>)
  # GCC 12 sees overlapping copies inside its own std::string (GCC PR 105651).
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
  if(KAPITSA_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
endfunction()
