# KAPITSA_SANITIZE: "address;undefined", "thread", or empty. Applied to everything, libraries and tests alike.
if(KAPITSA_SANITIZE)
  if("thread" IN_LIST KAPITSA_SANITIZE AND "address" IN_LIST KAPITSA_SANITIZE)
    message(FATAL_ERROR "KAPITSA_SANITIZE: thread and address cannot be combined")
  endif()
  list(JOIN KAPITSA_SANITIZE "," sanitizers)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizers})
endif()
