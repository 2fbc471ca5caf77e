-- Antonyms reverse a statement: the guard prevents a merge if one text has a word and the other its antonym. It treats synonyms as one
-- word.

create table memfold.antonyms (
    tenant_id text collate "C" not null default '*',
    word text collate "C" not null,
    antonym text collate "C" not null,
    language text collate "C",
    kind text collate "C" not null default 'antonym',
    constraint antonyms_pkey primary key (tenant_id, word, antonym),
    constraint antonyms_kind_check check (kind in ('antonym', 'synonym')),
    constraint antonyms_word_check check (word <> ''),
    constraint antonyms_antonym_check check (antonym <> '' and antonym <> word)
);

comment on table memfold.antonyms is
'Words that reverse a statement, one row per pair, read in both directions: two texts that differ in such a pair are never merged
automatically. Also synonyms (kind ''synonym''), which the guard treats as one word. Rows of tenant ''*'' ship with memfold
and apply to all tenants; rows of a tenant extend them for that tenant.';
comment on column memfold.antonyms.tenant_id is 'The tenant that the pair applies to; ''*'' for all.';
comment on column memfold.antonyms.word is
'One word in canonical form (profile prose/1: lower case); each inflected form is a separate word. In scripts without spaces it may be a
phrase.';
comment on column memfold.antonyms.antonym is 'Its opposite, or its synonym, in the same form.';
comment on column memfold.antonyms.language is
'ISO 639-1 code of the language, for readers only; null if it does not matter.';
comment on column memfold.antonyms.kind is
'antonym: the guard raises a signal for the pair. synonym: the guard treats them as equal; takes precedence over an antonym of the same
words.';

insert into memfold.antonyms (word, antonym, language)
select distinct on (1, 2)
    split_part(pair.words, '/', 1), split_part(pair.words, '/', 2), listed.language
from (values  -- noqa: LT02
    ('en', $pairs$
        like/hate like/dislike likes/hates likes/dislikes liked/hated liked/disliked love/hate loves/hates loved/hated
        love/dislike loves/dislikes loved/disliked enjoy/hate enjoys/hates enjoyed/hated enjoy/dislike enjoys/dislikes
        enjoyed/disliked enjoy/avoid enjoys/avoids prefer/avoid prefers/avoids prefers/dislikes prefers/hates
        prefer/hate prefer/dislike adores/detests loves/detests likes/detests want/refuse wants/refuses wanted/refused
        open/closed open/close opens/closes opened/closed open/shut opens/shuts allow/deny allows/denies
        allowed/denied allow/forbid allows/forbids allowed/forbidden allow/block allows/blocks allowed/blocked
        allow/prevent allows/prevents allow/prohibit allows/prohibits allowed/prohibited permitted/forbidden
        permitted/prohibited permits/prohibits accept/reject accepts/rejects accepted/rejected accept/refuse
        accepts/refuses accepted/refused approve/reject approves/rejects approved/rejected accepted/declined
        approved/denied granted/denied grant/deny grants/denies grant/revoke grants/revokes granted/revoked
        agree/disagree agrees/disagrees agreed/disagreed confirm/deny confirms/denies confirmed/denied admits/denies
        admit/deny admitted/denied before/after until/after earlier/later early/late soon/late past/future
        previous/next former/current old/new older/newer oldest/newest young/old younger/older youngest/oldest
        first/last first/second second/third initial/final beginning/end begin/end begins/ends began/ended start/end
        starts/ends started/ended start/stop starts/stops started/stopped starting/stopping start/finish
        starts/finishes started/finished begin/stop begins/stops continue/stop continues/stops continued/stopped
        continue/quit continues/quits open/finished yesterday/tomorrow yesterday/today today/tomorrow am/pm
        morning/evening morning/night morning/afternoon afternoon/evening mornings/evenings mornings/nights
        mornings/afternoons afternoons/evenings day/night days/nights daily/weekly daily/monthly weekly/monthly
        weekly/yearly monthly/yearly monthly/quarterly quarterly/yearly daily/hourly hourly/weekly annually/monthly
        buy/sell buys/sells bought/sold buying/selling buyer/seller lend/borrow lends/borrows lent/borrowed
        import/export imports/exports imported/exported earn/spend earns/spends earned/spent earn/lose earns/loses
        save/spend saves/spends win/lose wins/loses won/lost winner/loser winners/losers gain/lose gains/loses
        gained/lost gain/loss profit/loss profits/losses hire/fire hires/fires hired/fired hired/dismissed join/leave
        joins/leaves joined/left arrive/leave arrives/leaves arrived/left arrive/depart arrives/departs
        arrived/departed enter/exit enters/exits entered/exited enter/leave enters/leaves entered/left send/receive
        sends/receives sent/received sender/recipient give/take gives/takes gave/took push/pull pushes/pulls
        pushed/pulled upload/download uploads/downloads uploaded/downloaded input/output read/write reads/writes
        ask/answer asks/answers asked/answered teach/learn teaches/learns taught/learned teacher/student
        teachers/students remember/forget remembers/forgets remembered/forgot find/lose finds/loses found/lost on/off
        enable/disable enables/disables enabled/disabled activate/deactivate activated/deactivated active/inactive
        activate/disable turned/kept online/offline connected/disconnected install/uninstall installed/uninstalled
        installed/removed add/remove adds/removes added/removed include/exclude includes/excludes included/excluded
        including/excluding insert/delete inserted/deleted created/deleted create/delete creates/deletes
        create/destroy creates/destroys build/destroy keep/delete keeps/deletes kept/deleted keep/discard lock/unlock
        locked/unlocked public/private internal/external local/remote manual/automatic manually/automatically
        synchronous/asynchronous static/dynamic frontend/backend client/server encrypted/plaintext mandatory/optional
        required/optional optional/compulsory success/failure successful/failed successfully/unsuccessfully
        succeed/fail succeeds/fails succeeded/failed pass/fail passes/fails passed/failed works/fails working/broken
        valid/invalid correct/wrong correct/incorrect right/wrong true/false yes/no fixed/broken safe/dangerous
        safe/unsafe secure/vulnerable increase/decrease increases/decreases increased/decreased increasing/decreasing
        increase/reduce increases/reduces increased/reduced raise/lower raises/lowers raised/lowered rise/fall
        rises/falls rose/fell rising/falling higher/lower high/low highest/lowest up/down upward/downward grow/shrink
        grows/shrinks grew/shrank expand/contract expands/contracts more/less more/fewer most/least maximum/minimum
        max/min maximal/minimal maximise/minimise maximize/minimize many/few much/little majority/minority above/below
        over/under upper/lower top/bottom improve/worsen improves/worsens improved/worsened better/worse best/worst
        good/bad well/badly improve/hamper improves/hampers benefit/harm benefits/harms beneficial/harmful
        helps/hinders help/hinder helped/hindered support/oppose supports/opposes supported/opposed supporter/opponent
        advantage/disadvantage strengthen/weaken strengthens/weakens strengthened/weakened encourage/discourage
        encourages/discourages praise/criticise praises/criticises praised/criticised praise/criticize
        praises/criticizes praised/criticized positive/negative optimistic/pessimistic attack/defend attacks/defends
        attacked/defended always/never always/sometimes always/rarely always/seldom never/sometimes never/often
        often/rarely often/seldom often/never usually/rarely usually/never frequently/rarely frequently/never
        frequently/seldom regularly/never occasionally/always occasionally/never sometimes/often all/none all/some
        every/no everyone/nobody everybody/nobody everyone/someone everything/nothing something/nothing
        anything/nothing both/neither both/only only/also all/few most/few many/none several/none some/no some/none
        permanent/temporary permanently/temporarily must/may with/without inside/outside indoor/outdoor
        indoors/outdoors in/out near/far close/far nearby/distant left/right front/back forward/backward
        forwards/backwards ahead/behind north/south east/west northern/southern eastern/western northeast/southwest
        upstairs/downstairs here/there together/apart hot/cold warm/cold warm/cool hotter/colder warmer/colder wet/dry
        rainy/sunny summer/winter spring/autumn spring/fall summer/autumn winter/spring summers/winters big/small
        bigger/smaller biggest/smallest large/small larger/smaller largest/smallest huge/tiny long/short
        longer/shorter longest/shortest tall/short taller/shorter wide/narrow wider/narrower thick/thin deep/shallow
        heavy/light heavier/lighter fast/slow faster/slower fastest/slowest quickly/slowly rapidly/slowly quick/slow
        hard/soft easy/hard easy/difficult easier/harder simple/complex simple/complicated cheap/expensive
        cheaper/dearer strong/weak stronger/weaker full/empty rich/poor clean/dirty bright/dark light/dark loud/quiet
        noisy/quiet sweet/sour sweet/savoury sweet/bitter spicy/mild raw/cooked fresh/stale sharp/blunt rough/smooth
        major/minor senior/junior single/married married/divorced single/divorced married/unmarried alive/dead
        living/dead born/died male/female man/woman men/women boy/girl boys/girls mother/father brother/sister
        brothers/sisters son/daughter sons/daughters husband/wife boyfriend/girlfriend uncle/aunt nephew/niece
        grandmother/grandfather king/queen parent/child parents/children cat/dog cats/dogs vegetarian/carnivore
        vegan/carnivore vegetarians/carnivores vegan/omnivore vegetarian/omnivore coffee/tea meat/fish
        introvert/extrovert introverted/extroverted friend/enemy friends/enemies employer/employee employed/unemployed
        boss/subordinate doctor/patient tenant/landlord guest/host happy/sad happily/sadly pleased/annoyed
        calm/nervous calm/angry relaxed/stressed polite/rude brave/afraid confident/anxious healthy/sick healthy/ill
        asleep/awake awake/sleeping standing/sitting stand/sit stands/sits walking/running interested/bored
        interesting/boring lazy/hardworking guilty/innocent honest/dishonest present/absent available/busy busy/idle
        formal/informal formal/casual serious/joking smoker/nonsmoker part/full domestic/foreign urban/rural
        ancient/modern traditional/modern similar/different same/different similarly/differently alike/different
        equal/unequal identical/different war/peace victory/defeat love/indifference ally/enemy liberal/conservative
        civilian/military literal/figurative theoretical/practical natural/artificial sender/receiver singular/plural
        vowel/consonant toxic/harmless allergic/immune increase/cut raise/cut continues/ends lifts/imposes lift/impose
        lifted/imposed lifts/continues extend/shorten extends/shortens extended/shortened appear/disappear
        appears/disappears appeared/disappeared float/sink floats/sinks rising/sinking hide/show hides/shows
        hidden/visible hidden/shown reveal/conceal reveals/conceals revealed/concealed visible/invisible attach/detach
        attached/detached follow/lead follows/leads followed/led merge/split merged/split merges/splits unite/divide
        united/divided include/omit includes/omits included/omitted minority/majority host/client likely/unlikely
        possible/impossible able/unable aware/unaware certain/uncertain common/rare commonly/rarely popular/unpopular
        superior/inferior maternal/paternal vertical/horizontal vertically/horizontally clockwise/anticlockwise
        clockwise/counterclockwise rejects/supports rejected/supported reject/support ends/extends banned/allowed
        ban/allow bans/allows legal/illegal legalise/ban legalize/ban profit/deficit surplus/deficit credit/debit
        asset/liability assets/liabilities large/little big/little giant/little giant/tiny daytime/night
        daytime/nighttime some/every presence/absence opposite/same basic/complex basic/advanced beginner/expert
        win/losing winning/losing cancelled/confirmed cancelled/scheduled canceled/confirmed canceled/scheduled
        vertebrate/invertebrate odd/even major/minor plus/minus north/west south/east debit/credit
        quit/start quit/started quits/starts quit/begin quit/began quit/joined quits/joins quit/continued
        stopped/began stopping/beginning finish/begin finished/began retain/lose retains/loses retained/lost
        keep/lose keeps/loses kept/lost keep/sell kept/sold increasing/reducing increase/lower increases/lowers
        increased/lowered raising/lowering raising/cutting growing/shrinking growing/falling rising/dropping
        rose/dropped rise/drop rises/drops support/against supports/against supported/against supporting/against
        supporting/opposing favour/against favor/against favours/opposes favors/opposes favoured/opposed
        favored/opposed for/against accept/decline accepts/declines accepting/declining accepting/rejecting
        agreed/refused agrees/refuses agree/refuse approves/declines approved/declined winning/lost wins/lost
        win/lost won/loses bought/rented buys/rents owns/rents own/rent owned/rented hired/quit moved/stayed
        moving/staying moves/stays stay/leave stays/leaves stayed/left come/go comes/goes came/went opening/closing
        enabling/disabling adding/removing allowing/blocking locking/unlocking sending/receiving arriving/leaving
        arriving/departing pushing/pulling lending/borrowing importing/exporting uploading/downloading front/behind
        above/under above/beneath over/below over/beneath on/under onto/off into/out toward/away towards/away
        upstream/downstream inbound/outbound incoming/outgoing ingress/egress uphill/downhill leftmost/rightmost
        northwards/southwards eastwards/westwards inland/coastal top/under staging/production staging/prod
        staging/live dev/staging dev/production dev/prod dev/test during/after during/before northernmost/southernmost
        easternmost/westernmost development/production development/staging test/production
        test/prod test/staging testing/production testing/staging qa/production qa/staging sandbox/production
        preproduction/production beta/stable nightly/stable draft/final draft/published primary/secondary
        primary/replica master/replica leader/follower vegan/vegetarian vegan/pescatarian vegetarian/pescatarian
        vegetarian/nonvegetarian vegan/meat vegetarian/meat often/occasionally always/often always/usually all/most
        all/several most/some everyone/few everybody/somebody everything/something anyone/nobody anybody/nobody
        someone/nobody somebody/nobody former/future future/current previous/current previously/currently
        formerly/currently formerly/now once/currently once/always since/until since/before from/until upper/bottom
        hourly/monthly daily/yearly annually/daily weekly/annually fortnightly/weekly biweekly/weekly
        weekday/weekend weekdays/weekends public/secret loosen/tighten loosens/tightens loosened/tightened hire/quit
        borrower/lender exporter/importer$pairs$),
    ('de', $pairs$
        mag/hasst mögen/hassen mochte/hasste liebt/hasst lieben/hassen liebte/hasste liebe/hasse mag/meidet
        bevorzugt/meidet bevorzugt/vermeidet genießt/hasst gerne/ungern gern/ungern offen/geschlossen öffnen/schließen
        öffnet/schließt geöffnet/geschlossen auf/zu erlauben/verbieten erlaubt/verbietet erlaubt/verboten
        zulassen/ablehnen annehmen/ablehnen akzeptiert/abgelehnt genehmigt/abgelehnt akzeptieren/ablehnen
        stimmt/bestreitet vor/nach vorher/nachher früher/später früh/spät alt/neu älter/jünger alt/jung ältere/jüngere
        ältester/jüngster erste/letzte ersten/letzten erster/letzter anfang/ende beginnt/endet begann/endete
        beginnen/aufhören starten/stoppen startet/stoppt gestartet/gestoppt gestern/morgen gestern/heute heute/morgen
        vormittag/nachmittag morgens/abends vormittags/nachmittags morgens/nachts abends/nachts tags/nachts tag/nacht
        morgen/abend mittag/abend täglich/wöchentlich täglich/monatlich wöchentlich/monatlich monatlich/jährlich
        kaufen/verkaufen kauft/verkauft kaufte/verkaufte gekauft/verkauft gewinnen/verlieren gewinnt/verliert
        gewann/verlor gewonnen/verloren gewinn/verlust einstellen/entlassen eingestellt/entlassen kommen/gehen
        ankunft/abfahrt senden/empfangen sendet/empfängt gesendet/empfangen geben/nehmen gibt/nimmt an/aus ein/aus
        einschalten/ausschalten eingeschaltet/ausgeschaltet aktiviert/deaktiviert aktivieren/deaktivieren
        aktiv/inaktiv online/offline hinzufügen/entfernen hinzugefügt/entfernt öffentlich/privat intern/extern
        manuell/automatisch erfolg/misserfolg erfolgreich/gescheitert erfolgreich/fehlgeschlagen gültig/ungültig
        richtig/falsch wahr/falsch ja/nein sicher/gefährlich sicher/unsicher steigen/sinken steigt/sinkt stieg/sank
        erhöhen/senken erhöht/gesenkt erhöhen/verringern zunehmen/abnehmen hoch/niedrig höher/niedriger hoch/tief
        mehr/weniger viel/wenig viele/wenige meiste/wenigste maximal/minimal maximum/minimum mindestens/höchstens
        besser/schlechter gut/schlecht beste/schlechteste immer/nie immer/selten oft/selten oft/nie manchmal/immer
        häufig/selten alle/keine alle/einige jeder/niemand alles/nichts mit/ohne innen/außen drinnen/draußen nah/fern
        nah/weit links/rechts linke/rechte linken/rechten vorne/hinten oben/unten über/unter norden/süden osten/westen
        nördlich/südlich östlich/westlich heiß/kalt warm/kalt warm/kühl nass/trocken sommer/winter frühling/herbst
        groß/klein größer/kleiner große/kleine großen/kleinen lang/kurz länger/kürzer breit/schmal schwer/leicht
        schwierig/einfach schnell/langsam schneller/langsamer hart/weich teuer/billig teuer/günstig stark/schwach
        voll/leer reich/arm sauber/schmutzig hell/dunkel helle/dunkle hellen/dunklen laut/leise süß/sauer süß/salzig
        süß/bitter scharf/mild ledig/verheiratet verheiratet/geschieden lebend/tot mann/frau junge/mädchen
        mutter/vater bruder/schwester sohn/tochter ehemann/ehefrau katze/hund katzen/hunde vegetarier/fleischesser
        vegan/fleischesser kaffee/tee freund/feind angestellt/arbeitslos glücklich/traurig ruhig/nervös gesund/krank
        wach/müde raucher/nichtraucher vollzeit/teilzeit gleich/verschieden anwesend/abwesend dafür/dagegen für/gegen
        vorteil/nachteil$pairs$),
    ('fr', $pairs$
        aime/déteste aime/hait aimer/détester aimait/détestait adore/déteste adorer/détester préfère/évite
        apprécie/déteste ouvert/fermé ouverte/fermée ouverts/fermés ouvrir/fermer ouvre/ferme autoriser/interdire
        autorise/interdit autorisé/interdit permis/interdit accepter/refuser accepte/refuse accepté/refusé
        approuvé/rejeté avant/après tôt/tard ancien/nouveau ancienne/nouvelle vieux/jeune vieille/jeune vieux/nouveau
        premier/dernier première/dernière début/fin commence/termine commencer/finir commencé/terminé commence/finit
        démarrer/arrêter démarre/arrête hier/demain hier/aujourd'hui matin/soir matin/nuit jour/nuit
        quotidien/hebdomadaire hebdomadaire/mensuel mensuel/annuel acheter/vendre achète/vend acheté/vendu
        gagner/perdre gagne/perd gagné/perdu embauché/licencié arrive/part arriver/partir arrivée/départ
        envoyer/recevoir envoie/reçoit donner/prendre activer/désactiver active/désactive activé/désactivé
        activée/désactivée allumé/éteint allumer/éteindre ajouter/supprimer ajouté/supprimé public/privé
        interne/externe manuel/automatique réussi/échoué réussit/échoue succès/échec valide/invalide vrai/faux
        vraie/fausse juste/faux oui/non sûr/dangereux augmenter/diminuer augmente/diminue augmenté/diminué
        augmente/baisse augmenter/réduire hausse/baisse haut/bas haute/basse plus/moins beaucoup/peu meilleur/pire
        bon/mauvais bonne/mauvaise bien/mal mieux/pire toujours/jamais souvent/rarement souvent/jamais parfois/jamais
        parfois/toujours tous/aucun toutes/aucune tout/rien avec/sans dedans/dehors intérieur/extérieur près/loin
        gauche/droite gauche/droit devant/derrière dessus/dessous nord/sud est/ouest chaud/froid chaude/froide
        sec/humide été/hiver printemps/automne grand/petit grande/petite grands/petits long/court longue/courte
        large/étroit lourd/léger facile/difficile rapide/lent rapidement/lentement cher/abordable fort/faible
        plein/vide riche/pauvre propre/sale clair/sombre clair/foncé claire/foncée bruyant/calme sucré/salé doux/épicé
        célibataire/marié célibataire/mariée marié/divorcé mariée/divorcée vivant/mort homme/femme garçon/fille
        mère/père frère/sœur fils/fille mari/femme chat/chien chats/chiens végétarien/carnivore végétarienne/carnivore
        café/thé ami/ennemi heureux/triste heureuse/triste content/mécontent malade/guéri introverti/extraverti
        pour/contre présent/absent même/différent$pairs$),
    ('es', $pairs$
        ama/odia amar/odiar gusta/disgusta gustan/disgustan adora/odia adora/detesta encanta/disgusta prefiere/evita
        quiere/rechaza abierto/cerrado abierta/cerrada abiertos/cerrados abrir/cerrar abre/cierra permitir/prohibir
        permite/prohíbe permitido/prohibido permitida/prohibida aceptar/rechazar acepta/rechaza aceptado/rechazado
        aprobado/rechazado aprueba/rechaza antes/después temprano/tarde antiguo/nuevo antigua/nueva viejo/nuevo
        vieja/nueva viejo/joven mayor/menor primero/último primera/última primer/último principio/final
        comienza/termina empieza/termina empezar/terminar comenzó/terminó iniciar/detener inicia/detiene ayer/mañana
        ayer/hoy hoy/mañana mañana/noche mañana/tarde mañanas/noches mañanas/tardes tarde/noche día/noche
        diario/semanal semanal/mensual mensual/anual comprar/vender compra/vende compró/vendió comprado/vendido
        ganar/perder gana/pierde ganó/perdió ganado/perdido contratado/despedido llega/sale llegar/salir
        llegada/salida entrar/salir entrada/salida enviar/recibir envía/recibe dar/tomar activar/desactivar
        activa/desactiva activado/desactivado activada/desactivada activo/inactivo encendido/apagado encender/apagar
        añadir/eliminar agregar/eliminar añadido/eliminado público/privado pública/privada interno/externo
        manual/automático éxito/fracaso válido/inválido correcto/incorrecto verdadero/falso verdad/mentira sí/no
        seguro/peligroso aumentar/disminuir aumenta/disminuye aumentó/disminuyó aumentar/reducir aumenta/reduce
        subir/bajar sube/baja subió/bajó alto/bajo alta/baja más/menos mucho/poco muchos/pocos mejor/peor bueno/malo
        buena/mala bien/mal siempre/nunca siempre/jamás frecuentemente/raramente siempre/raramente todos/ninguno
        todo/nada alguien/nadie algo/nada con/sin dentro/fuera interior/exterior cerca/lejos izquierda/derecha
        izquierdo/derecho delante/detrás arriba/abajo encima/debajo norte/sur este/oeste caliente/frío caliente/fría
        calor/frío seco/húmedo verano/invierno primavera/otoño grande/pequeño grande/pequeña grandes/pequeños
        largo/corto larga/corta ancho/estrecho pesado/ligero fácil/difícil rápido/lento rápida/lenta
        rápidamente/lentamente caro/barato cara/barata fuerte/débil lleno/vacío rico/pobre limpio/sucio claro/oscuro
        clara/oscura ruidoso/tranquilo dulce/salado dulce/amargo soltero/casado soltera/casada casado/divorciado
        casada/divorciada vivo/muerto hombre/mujer niño/niña madre/padre hermano/hermana hijo/hija esposo/esposa
        marido/mujer gato/perro gatos/perros vegetariano/carnívoro vegetariana/carnívora café/té amigo/enemigo
        feliz/triste sano/enfermo despierto/dormido introvertido/extrovertido favor/contra igual/diferente
        presente/ausente$pairs$),
    ('it', $pairs$
        ama/odia amare/odiare piace/dispiace adora/detesta adora/odia preferisce/evita aperto/chiuso aperta/chiusa
        aperti/chiusi aprire/chiudere apre/chiude permettere/vietare permette/vieta permesso/vietato
        consentito/vietato accettare/rifiutare accetta/rifiuta accettato/rifiutato approvato/respinto prima/dopo
        presto/tardi vecchio/nuovo vecchia/nuova vecchio/giovane primo/ultimo prima/ultima inizio/fine inizia/finisce
        iniziare/finire comincia/finisce ieri/domani ieri/oggi oggi/domani mattina/sera mattina/notte giorno/notte
        quotidiano/settimanale settimanale/mensile mensile/annuale comprare/vendere compra/vende comprato/venduto
        vincere/perdere vince/perde vinto/perso assunto/licenziato arriva/parte arrivare/partire arrivo/partenza
        inviare/ricevere invia/riceve attivare/disattivare attiva/disattiva attivato/disattivato attivo/inattivo
        acceso/spento accendere/spegnere aggiungere/rimuovere aggiunto/rimosso pubblico/privato interno/esterno
        manuale/automatico successo/fallimento valido/invalido vero/falso sì/no sicuro/pericoloso aumentare/diminuire
        aumenta/diminuisce aumentato/diminuito alto/basso alta/bassa più/meno molto/poco molti/pochi migliore/peggiore
        meglio/peggio buono/cattivo bene/male sempre/mai spesso/raramente spesso/mai tutti/nessuno tutto/niente
        con/senza dentro/fuori vicino/lontano sinistra/destra davanti/dietro sopra/sotto nord/sud est/ovest
        caldo/freddo calda/fredda secco/umido estate/inverno primavera/autunno grande/piccolo grande/piccola
        lungo/corto lunga/corta pesante/leggero facile/difficile veloce/lento velocemente/lentamente caro/economico
        forte/debole pieno/vuoto ricco/povero pulito/sporco chiaro/scuro chiara/scura rumoroso/silenzioso dolce/salato
        dolce/amaro single/sposato sposato/divorziato sposata/divorziata celibe/sposato nubile/sposata vivo/morto
        uomo/donna madre/padre fratello/sorella figlio/figlia marito/moglie gatto/cane gatti/cani
        vegetariano/carnivoro vegetariana/carnivora caffè/tè amico/nemico felice/triste sano/malato
        sveglio/addormentato introverso/estroverso favore/contro uguale/diverso presente/assente$pairs$),
    ('pt', $pairs$
        ama/odeia amar/odiar gosta/detesta gosta/odeia gostar/odiar adora/detesta adora/odeia prefere/evita
        aberto/fechado aberta/fechada abrir/fechar abre/fecha permitir/proibir permite/proíbe permitido/proibido
        aceitar/rejeitar aceita/rejeita aceito/rejeitado aprovado/rejeitado aceitar/recusar aceita/recusa antes/depois
        cedo/tarde velho/novo velha/nova velho/jovem antigo/novo primeiro/último primeira/última início/fim
        começa/termina começar/terminar começou/terminou iniciar/parar ontem/amanhã ontem/hoje hoje/amanhã manhã/noite
        manhã/tarde tarde/noite dia/noite diário/semanal semanal/mensal mensal/anual comprar/vender compra/vende
        comprou/vendeu ganhar/perder ganha/perde ganhou/perdeu contratado/demitido chega/sai chegar/partir
        entrada/saída enviar/receber envia/recebe ativar/desativar ativa/desativa ativado/desativado
        ativada/desativada ativo/inativo ligado/desligado ligada/desligada ligar/desligar adicionar/remover
        adicionado/removido público/privado interno/externo manual/automático sucesso/fracasso válido/inválido
        verdadeiro/falso certo/errado sim/não seguro/perigoso aumentar/diminuir aumenta/diminui aumentou/diminuiu
        aumentar/reduzir subir/descer alto/baixo alta/baixa mais/menos muito/pouco muitos/poucos melhor/pior bom/mau
        boa/má bem/mal sempre/nunca sempre/raramente todos/nenhum tudo/nada alguém/ninguém algo/nada com/sem
        dentro/fora perto/longe esquerda/direita frente/trás acima/abaixo norte/sul leste/oeste quente/frio
        quente/fria seco/úmido verão/inverno primavera/outono grande/pequeno grande/pequena longo/curto longa/curta
        pesado/leve fácil/difícil rápido/lento rápida/lenta rapidamente/lentamente caro/barato cara/barata forte/fraco
        cheio/vazio rico/pobre limpo/sujo claro/escuro clara/escura barulhento/silencioso doce/salgado doce/amargo
        solteiro/casado solteira/casada casado/divorciado casada/divorciada vivo/morto homem/mulher mãe/pai irmão/irmã
        filho/filha marido/esposa gato/cachorro gatos/cachorros gato/cão gatos/cães vegetariano/carnívoro
        vegetariana/carnívora café/chá amigo/inimigo feliz/triste saudável/doente acordado/dormindo
        introvertido/extrovertido favor/contra igual/diferente presente/ausente$pairs$),
    ('ru', $pairs$
        любит/ненавидит любить/ненавидеть любил/ненавидел любила/ненавидела нравится/отвратителен
        предпочитает/избегает обожает/ненавидит открыт/закрыт открыта/закрыта открыто/закрыто открыты/закрыты
        открыть/закрыть открывает/закрывает открывается/закрывается разрешить/запретить разрешает/запрещает
        разрешено/запрещено разрешён/запрещён принять/отклонить принял/отклонил принимает/отклоняет принято/отклонено
        одобрено/отклонено одобрил/отклонил до/после раньше/позже рано/поздно старый/новый старая/новая старый/молодой
        старший/младший старшая/младшая первый/последний первая/последняя начало/конец начинается/заканчивается
        начать/закончить начал/закончил начала/закончила вчера/завтра вчера/сегодня сегодня/завтра утром/вечером
        утром/ночью днём/ночью утро/вечер день/ночь ежедневно/еженедельно еженедельно/ежемесячно ежемесячно/ежегодно
        купить/продать купил/продал купила/продала покупает/продаёт выиграть/проиграть выиграл/проиграл
        выигрывает/проигрывает победа/поражение нанят/уволен приехал/уехал приехала/уехала пришёл/ушёл пришла/ушла
        приходит/уходит отправить/получить отправляет/получает отправил/получил включить/выключить включён/выключен
        включена/выключена включено/выключено включены/выключены включает/выключает включён/отключён
        включено/отключено включить/отключить активен/неактивен добавить/удалить добавил/удалил добавлен/удалён
        публичный/приватный открытый/закрытый внутренний/внешний ручной/автоматический вручную/автоматически
        успех/провал успешно/неудачно верно/неверно правда/ложь правильный/неправильный да/нет безопасный/опасный
        увеличить/уменьшить увеличивает/уменьшает увеличился/уменьшился увеличилась/уменьшилась растёт/падает
        вырос/упал выросла/упала высокий/низкий высокая/низкая выше/ниже больше/меньше много/мало
        большинство/меньшинство лучше/хуже лучший/худший хороший/плохой хорошая/плохая хорошо/плохо всегда/никогда
        часто/редко часто/никогда иногда/никогда иногда/всегда все/никто всё/ничего с/без внутри/снаружи близко/далеко
        слева/справа левый/правый левая/правая левой/правой впереди/сзади вверх/вниз вверху/внизу север/юг
        восток/запад севере/юге востоке/западе горячий/холодный горячую/холодную тёплый/холодный жарко/холодно
        сухой/мокрый лето/зима летом/зимой весной/осенью большой/маленький большая/маленькая большую/маленькую
        длинный/короткий широкий/узкий тяжёлый/лёгкий лёгкий/трудный легко/трудно простой/сложный быстрый/медленный
        быстро/медленно дорогой/дешёвый сильный/слабый полный/пустой богатый/бедный чистый/грязный светлый/тёмный
        светлую/тёмную светлая/тёмная громкий/тихий сладкий/солёный сладкий/горький холост/женат замужем/разведена
        женат/разведён жив/мёртв мужчина/женщина мальчик/девочка мать/отец брат/сестра сын/дочь муж/жена кошка/собака
        кошки/собаки кошек/собак вегетарианец/мясоед кофе/чай друг/враг счастлив/несчастлив весёлый/грустный
        здоров/болен интроверт/экстраверт за/против одинаковый/разный$pairs$),
    ('zh', $pairs$
        喜欢/讨厌 喜欢/厌恶 喜歡/討厭 喜爱/讨厌 热爱/憎恨 爱/恨 偏好/避免 打开/关闭 開啟/關閉 开启/关闭 开放/封闭 允许/禁止 允許/禁止 允许/拒绝 接受/拒绝 同意/反对 批准/拒绝 支持/反对
        之前/之后 以前/以后 早上/晚上 上午/下午 白天/晚上 早晨/夜晚 白天/夜里 开始/结束 开始/停止 昨天/明天 昨天/今天 今天/明天 去年/今年 去年/明年 今年/明年 每天/每周 每周/每月 每月/每年
        第一/最后 买/卖 购买/出售 赢/输 胜利/失败 成功/失败 入职/离职 雇用/解雇 雇佣/解雇 到达/离开 进入/离开 发送/接收 启用/禁用 启用/停用 啟用/停用 激活/停用 在线/离线 连接/断开 添加/删除
        增加/减少 增加/減少 上升/下降 提高/降低 上涨/下跌 升职/降职 公开/私有 公开/保密 内部/外部 手动/自动 有效/无效 正确/错误 真/假 安全/危险 高/低 多/少 最多/最少 最大/最小 最高/最低
        大/小 好/坏 更好/更差 总是/从不 经常/很少 经常/从不 有时/总是 全部/部分 里面/外面 室内/室外 附近/远处 左/右 左边/右边 前面/后面 上面/下面 北方/南方 东部/西部 北部/南部 热/冷
        夏天/冬天 春天/秋天 长/短 重/轻 快/慢 容易/困难 简单/复杂 贵/便宜 强/弱 满/空 富/穷 干净/脏 明亮/黑暗 浅色/深色 亮色/暗色 吵闹/安静 甜/咸 甜/苦 单身/已婚 已婚/离婚 未婚/已婚
        活着/去世 男/女 男人/女人 母亲/父亲 妈妈/爸爸 哥哥/姐姐 弟弟/妹妹 儿子/女儿 丈夫/妻子 猫/狗 素食/肉食 咖啡/茶 朋友/敌人 高兴/难过 开心/难过 快乐/悲伤 健康/生病 内向/外向 相同/不同
        必须/可选 收入/支出 全职/兼职 年轻/年老 新/旧$pairs$),
    ('ja', $pairs$
        好き/嫌い 好む/嫌う 大好き/大嫌い 好んで/嫌って 開く/閉じる 開いて/閉じて 開いて/閉まって 開ける/閉める 許可/禁止 許可/拒否 承認/却下 承認/拒否 受け入れ/拒否 賛成/反対 以前/以降 前に/後に
        午前/午後 朝/夜 朝/夕方 朝食/夕食 昼/夜 昨日/明日 昨日/今日 今日/明日 去年/今年 来年/今年 去年/来年 毎日/毎週 毎週/毎月 毎月/毎年 開始/終了 始まる/終わる 始めた/やめた 始め/終わり
        始まり/終わり 最初/最後 買う/売る 買った/売った 購入/売却 勝つ/負ける 勝った/負けた 成功/失敗 合格/不合格 採用/解雇 入社/退社 到着/出発 送信/受信 有効/無効 オン/オフ オンライン/オフライン
        接続/切断 追加/削除 増加/減少 増える/減る 増えた/減った 上昇/下降 上げる/下げる 上がった/下がった 公開/非公開 内部/外部 手動/自動 正しい/間違った 安全/危険 高い/低い 高い/安い 多い/少ない
        最大/最小 最高/最低 大きい/小さい 大きな/小さな 良い/悪い いつも/決して いつも/たまに よく/めったに 室内/屋外 近い/遠い 近く/遠く 左/右 上/下 北/南 東/西 暑い/寒い 熱い/冷たい
        温かい/冷たい ホット/アイス 夏/冬 春/秋 長い/短い 重い/軽い 速い/遅い 早い/遅い 簡単/難しい 強い/弱い 明るい/暗い ライト/ダーク 静か/うるさい 甘い/辛い 甘い/苦い 独身/既婚 未婚/既婚
        結婚/離婚 男性/女性 母/父 兄/姉 弟/妹 息子/娘 夫/妻 猫/犬 菜食/肉食 コーヒー/紅茶 コーヒー/お茶 友人/敵 嬉しい/悲しい 健康/病気 内向/外向 同じ/違う 必須/任意 収入/支出 新しい/古い
        若い/年老いた$pairs$),
    ('ko', $pairs$
        좋아/싫어 사랑/증오 열려/닫혀 열기/닫기 허용/금지 허용/거부 승인/거절 찬성/반대 이전/이후 오전/오후 아침/저녁 낮/밤 어제/내일 어제/오늘 오늘/내일 시작/종료 구매/판매 이겼/졌 성공/실패
        활성화/비활성화 켜져/꺼져 온라인/오프라인 추가/삭제 증가/감소 공개/비공개 항상/가끔 왼쪽/오른쪽 뜨거운/차가운 여름/겨울 봄/가을 미혼/기혼 고양이/개 채식/육식 커피/차$pairs$)
) as listed(language, words)
cross join lateral string_to_table(translate(listed.words, E'\n', ' '), ' ') as pair(words)
where pair.words <> '';

-- Words of one kind that exclude each other: a favourite colour cannot be both blue and green.
insert into memfold.antonyms (word, antonym, language)
select one.word, other.word, kinds.language
from (values  -- noqa: LT02
    ('en', '{red,blue,green,yellow,orange,purple,pink,brown,black,white,grey}'::text[]),
    ('en', '{breakfast,lunch,dinner}'),
    ('en', '{guitar,piano,violin,drums,flute,cello,trumpet,saxophone}'),
    ('en', '{beer,wine,coffee,tea,water,milk,juice}'),
    ('en', '{wood,metal,plastic,glass,stone,brick}'),
    ('en', '{wooden,metal,plastic,glass,stone,brick}'),
    ('en', '{north,south,east,west}'),
    ('en', '{northern,southern,eastern,western}'),
    ('en', '{northeast,northwest,southeast,southwest}'),
    ('en', '{car,bicycle,bus,train,plane,motorcycle}'),
    ('en', '{python,java,javascript,typescript,rust,golang,ruby,kotlin,swift,php}'),
    ('en', '{linux,windows,macos,android,ios}'),
    ('en', '{postgresql,mysql,sqlite,mongodb,redis}'),
    ('en', '{football,basketball,tennis,baseball,golf,hockey,rugby,cricket,volleyball}'),
    ('de', '{rot,blau,grün,gelb,lila,rosa,braun,schwarz,weiß,grau}'),
    ('fr', '{rouge,bleu,vert,jaune,violet,rose,marron,noir,blanc,gris}'),
    ('es', '{rojo,azul,verde,amarillo,morado,rosa,marrón,negro,blanco,gris}'),
    ('it', '{rosso,blu,verde,giallo,viola,marrone,nero,bianco,grigio}'),
    ('pt', '{vermelho,azul,verde,amarelo,roxo,rosa,marrom,preto,branco,cinza}'),
    ('ru', '{красный,синий,зелёный,жёлтый,розовый,коричневый,чёрный,белый,серый}'),
    ('zh', '{红色,蓝色,绿色,黄色,紫色,粉色,棕色,黑色,白色,灰色}'),
    ('ja', '{赤,青,緑,黄色,紫,茶色,黒,白,灰色}')
) as kinds(language, words)
cross join lateral unnest(kinds.words) with ordinality as one(word, place)
cross join lateral unnest(kinds.words) with ordinality as other(word, place)
where one.place < other.place
on conflict do nothing;

-- Synonyms that are common in memories, in languages other than English, for which there is no lexicon.
insert into memfold.antonyms (word, antonym, language, kind)
select split_part(pair.words, '/', 1), split_part(pair.words, '/', 2), listed.language, 'synonym'
from (values  -- noqa: LT02
    ('de', $pairs$bevorzugt/mag mag/liebt wohnt/lebt besitzt/hat nutzt/benutzt nutzt/verwendet benutzt/verwendet beginnt/startet
        auto/wagen fahrrad/rad handy/mobiltelefon handy/smartphone arzt/doktor firma/unternehmen samstag/sonnabend isst/speist
        kaufte/erwarb gekauft/erworben geliehen/ausgeliehen bekommt/erhält heißt/nennt meeting/besprechung meeting/treffen$pairs$),
    ('fr', $pairs$préfère/aime aime/adore habite/vit habite/réside vit/réside utilise/emploie possède/a commence/débute voiture/auto
        vélo/bicyclette travail/emploi médecin/docteur entreprise/société finit/termine portable/téléphone$pairs$),
    ('es', $pairs$prefiere/gustan prefiere/gusta vive/reside vive/habita usa/utiliza toma/bebe tiene/posee comienza/empieza
        coche/carro coche/auto trabajo/empleo médico/doctor empresa/compañía termina/acaba móvil/celular ordenador/computadora$pairs$),
    ('it', $pairs$preferisce/piacciono preferisce/piace vive/abita vive/risiede usa/utilizza ha/possiede inizia/comincia macchina/auto
        automobile/auto bici/bicicletta medico/dottore azienda/ditta finisce/termina telefonino/cellulare lavoro/impiego$pairs$),
    ('pt', $pairs$prefere/gosta mora/vive mora/reside usa/utiliza toma/bebe tem/possui começa/inicia termina/acaba carro/automóvel
        celular/telemóvel médico/doutor empresa/companhia trabalho/emprego ônibus/autocarro$pairs$),
    ('ru', $pairs$предпочитает/любит живёт/проживает использует/применяет начинается/стартует машина/автомобиль врач/доктор
        фирма/компания велосипед/велик$pairs$),
    ('nl', $pairs$woont/leeft gebruikt/benut begint/start auto/wagen fiets/rijwiel arts/dokter bedrijf/firma mobiel/telefoon$pairs$),
    ('zh', $pairs$喜欢/偏爱 喜欢/爱好 住/居住 医生/大夫 公司/企业 手机/移动电话 自行车/单车 星期/周 汽车/轿车 没有/沒有$pairs$),
    ('ja', $pairs$好む/好き 住んで/暮らして 医者/医師 会社/企業 車/自動車 携帯/スマホ なければならない/必要がある$pairs$),
    ('ko', $pairs$선호한다/좋아한다 산다/거주한다 사용한다/쓴다 회사/기업 자동차/차$pairs$)
) as listed(language, words)
cross join lateral string_to_table(translate(listed.words, E'\n', ' '), ' ') as pair(words)
where pair.words <> ''
on conflict do nothing;
