# Run by CPack between the installation and the packing of the .deb: adds what lies outside of /opt/reduced. These are the
# service and its user, and links by which the system finds the programs, their man pages and their completion.
set(root ${CPACK_TEMPORARY_DIRECTORY})
set(prefix /opt/reduced)

file(COPY ${CPACK_REDUCED_DEPLOY}/systemd/reduced.service DESTINATION ${root}/usr/lib/systemd/system)
configure_file(${CPACK_REDUCED_DEPLOY}/systemd/sysusers.conf ${root}/usr/lib/sysusers.d/reduced.conf COPYONLY)
file(COPY ${CPACK_REDUCED_DEPLOY}/debian/environment DESTINATION ${root}/etc/reduced)
configure_file(${root}${prefix}/share/doc/reduced/LICENSE ${root}/usr/share/doc/reduced/copyright COPYONLY)

foreach(file
    bin/reduced bin/reducectl share/man/man8/reduced.8 share/man/man1/reducectl.1 share/bash-completion/completions/reducectl)
  if(NOT EXISTS ${root}${prefix}/${file})
    message(FATAL_ERROR "the installed tree has no ${file}")
  endif()
  get_filename_component(folder ${root}/usr/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${prefix}/${file} ${root}/usr/${file} SYMBOLIC)
endforeach()
