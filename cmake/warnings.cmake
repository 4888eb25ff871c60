# kapitsa_compile_options(target): the warnings and floating-point rules of all our code.
function(kapitsa_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Wold-style-cast
    # Designated initialisers leave out what keeps its default.
    -Wno-missing-field-initializers
    # Results must not depend on where the compiler chooses to fuse a multiply and an add.
    -ffp-contract=off)
  if(KAPITSA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
