# kapitsa_embed(target file function): adds a source to the target that defines std::string_view <function>() in namespace
# kapitsa::server, the content of the file at build time.
function(kapitsa_embed target file function)
  set(source ${PROJECT_BINARY_DIR}/generated/embedded/${function}.cpp)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${PROJECT_SOURCE_DIR}/${file} -DOUTPUT=${source} -DFUNCTION=${function}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake)
  target_sources(${target} PRIVATE ${source})
endfunction()
